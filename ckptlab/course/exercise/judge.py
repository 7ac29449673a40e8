"""What a rank does with an answer: it runs the check with every named wrong answer, then with the learner's. On ranks only.

Every rank runs every pass, because a check may call collectives. What the learner's function raises is a value, so that all
ranks reach the next one. The wrong answers come first: after a learner's deadlock no collective works any more.
"""

import __future__

import hashlib
import importlib.util
import linecache
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import cast

from ckptlab.course.exercise.case import AnswerRaised, Case, are_equal, disarmed, show
from ckptlab.course.exercise.source import WRONG, read
from ckptlab.ranks.answer import describe_error

_NOT_THE_LEARNERS = ("solution", "check", "Case")
_NO_ANSWER = re.compile(r"gloo|nccl|timed out|timeout|connection (closed|reset|refused)", re.IGNORECASE)


@dataclass(slots=True)
class Pass:
    """What one answer gave in all cases of a check."""

    cases: list[Case] = field(default_factory=list)
    given: object = None  # what the answer gave last
    broke: str | None = None  # what the check itself raised, if it could not go on with that

    def answer_with(self, function: Callable[..., object], file: str) -> Callable[..., object]:
        """Wrap an answer so that it never raises, and what it gave last is known."""

        def answer(*args: object, **kwargs: object) -> object:
            try:
                self.given = disarmed(function(*args, **kwargs))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit too
                self.given = _describe(error, file)
            return self.given

        return answer

    def agrees_with(self, other: "Pass") -> bool:
        """Whether both gave the same in every case, within the budget or beyond it."""
        return (
            self.broke == other.broke
            and len(self.cases) == len(other.cases)
            and all(
                are_equal(one.found, two.found) and one.is_within_budget == two.is_within_budget
                for one, two in zip(self.cases, other.cases, strict=True)
            )
        )


def judge(path: str, source: str) -> dict[str, object]:
    """Judge an answer on the rank that runs this; every rank of the world does, with the same `path` and `source`.

    Returns what the kernel needs to tell, JSON only: of the first case that is not right where it was, what was expected
    and found; and the names of the wrong answers that gave the same in every case.
    """
    exercise = read(Path(path))
    module = _load(Path(path), source)
    passes = {name: _run(module, getattr(module, name), path) for name in exercise.wrong}
    file = f"<exercise {exercise.id}>"
    try:
        function = cast(Callable[..., object], define(source, file, _names_of(module))[exercise.name])
    except Exception as error:  # in what stands around the function
        return {"state": "wrong", "case": 0, **_tell_found(_describe(error, file)), "same_as": []}
    own = _run(module, function, file)
    return {**_tell(own), "same_as": [name for name, wrong in passes.items() if own.agrees_with(wrong)]}


def define(source: str, file: str, namespace: dict[str, object]) -> dict[str, object]:
    """Run a learner's definitions in `namespace`; tracebacks show them under `file`, annotations are not looked up."""
    source = f"\n{source}"  # the magic line, so that the lines count as in the cell
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec", __future__.annotations.compiler_flag, dont_inherit=True), namespace)
    return namespace


def _load(path: Path, source: str) -> ModuleType:
    digest = hashlib.sha256(source.encode(errors="replace")).hexdigest()
    name = f"exercise_{digest}"  # the same on all ranks, and no answer can have it in it
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "it is a .py file"
    assert spec.loader is not None, "it is a .py file"
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _names_of(module: ModuleType) -> dict[str, object]:
    """What the learner's function may use: what the file imports and its constants, but no answer and no help for the check."""
    own = (name for name in vars(module) if name not in _NOT_THE_LEARNERS and not name.startswith((WRONG, "_")))
    return {name: getattr(module, name) for name in own}


def _run(module: ModuleType, function: Callable[..., object], file: str) -> Pass:
    done = Pass()
    main = sys.modules["__main__"]  # a rank's own, which knows its rank
    try:
        for case in module.check(done.answer_with(function, file), main.rank, main.world_size):
            done.cases.append(case)
            if isinstance(done.given, AnswerRaised) and done.given.no_answer:
                break
    except Exception as error:
        done.broke = f"{type(error).__name__}: {error}"
    return done


def _describe(error: BaseException, file: str) -> AnswerRaised:
    described = describe_error(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return AnswerRaised(
        described.what,
        described.own_lines if file in described.own_lines else "",  # none of it is the learner's: called wrongly
        untried=isinstance(error, NotImplementedError) and trace is not None and trace.tb_frame.f_code.co_filename == file,
        no_answer=isinstance(error, RuntimeError) and bool(_NO_ANSWER.search(described.what)),
    )


def _tell(own: Pass) -> dict[str, object]:
    for index, case in enumerate(own.cases):
        if not case.is_right:
            return {
                "state": "wrong",
                "case": index,
                "where": case.where,
                **_tell_found(case.found),
                "expected": show(case.expected),
            }
    if own.broke is not None:
        return {"state": "wrong", "case": len(own.cases), "broke": own.broke, **_tell_found(own.given)}
    for index, case in enumerate(own.cases):
        if not case.is_within_budget:
            return {"state": "right, but", "case": index, "where": case.where, "cost": case.cost, "budget": case.budget}
    return {"state": "right", "case": len(own.cases)}


def _tell_found(found: object) -> dict[str, object]:
    if isinstance(found, AnswerRaised):
        state = {"state": "untried"} if found.untried else {}
        return {**state, "raised": found.what, "own_lines": found.own_lines, "no_answer": found.no_answer}
    return {"found": show(found)}
