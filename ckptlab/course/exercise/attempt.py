"""Try an answer, on worlds of its own of every size that the exercise asks for: it can harm nothing else. Kernel side."""

import ast
import contextlib
import io
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from ckptlab.course import journal
from ckptlab.course.exercise import verdict
from ckptlab.course.exercise.judge import judge
from ckptlab.course.exercise.source import Exercise
from ckptlab.course.exercise.verdict import Told, Verdict
from ckptlab.errors import UsageError, WorldError
from ckptlab.ranks import World

SECONDS = 20.0  # for one world; a check takes less than one
MOST_CHARACTERS = 4000  # shown of what an answer prints


def try_answer(exercise: Exercise, source: str) -> Verdict:
    """Run an answer to an exercise and keep the attempt in the journal; an untouched stub is none.

    Raises:
        UsageError: the source does not define the exercise's function.
        SyntaxError: the source is not Python.
    """
    result = run_answer(exercise, source)
    if result.state != "untried":
        same_as = {"same_as": result.same_as} if result.same_as else {}
        try:
            journal.append("exercise", id=exercise.id, verdict=result.state, **same_as, source=source)
        except OSError as error:
            return replace(result, text=f"{result.text}\nThis attempt is not in your journal ({error}).")
    return result


def run_answer(
    exercise: Exercise,
    source: str,
    *,
    on_rank: Callable[[str, str], dict[str, object]] = judge,
) -> Verdict:
    """Run an answer on every rank of every world size: right is what is right on all of them.

    Args:
        exercise: what was answered.
        source: the answer.
        on_rank: what a rank does with the exercise's path and the answer: `judge`, or a function around it.

    Raises:
        UsageError, SyntaxError: as `try_answer`; or the answer has sent something else in place of its ranks' verdicts.
        WorldError: ranks could not be started, which says nothing of the answer.
    """
    _look_for(exercise, source)
    same_as = list(exercise.wrong)
    fault: tuple[int, Told, str] | None = None  # of the first world that had one
    printed = ""
    for world_size in exercise.world_sizes:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), World(world_size, timeout=SECONDS) as world:
            try:
                by_rank = cast(list[Told], world.run(on_rank, str(exercise.path), source))
            except WorldError as error:
                return verdict.ended(exercise, world_size, error, _end_of(output))
        if not all(map(verdict.is_told, by_rank)):
            raise UsageError("its ranks sent back what is no verdict: read this answer")
        rank, told = verdict.worst(by_rank)
        if told["state"] == "untried":
            return verdict.untried(exercise)
        same_as = [name for name in same_as if all(name in cast(list[str], found["same_as"]) for found in by_rank)]
        printed = _end_of(output)
        if fault is None or (fault[1]["state"], told["state"]) == ("right, but", "wrong"):
            fault = None if told["state"] == "right" else (rank, told, printed)
        if told.get("no_answer"):
            break  # the next world would wait as long
    if fault is not None:
        return verdict.not_right(exercise, *fault, same_as)
    return verdict.right(exercise, printed)


def _end_of(output: io.StringIO) -> str:
    """Return the end of what the ranks printed: one function prints in every case, on every rank."""
    text = output.getvalue()
    left_out = len(text) - MOST_CHARACTERS
    return f"… {left_out:,} characters before this are left out\n{text[-MOST_CHARACTERS:]}" if left_out > 0 else text


def _look_for(exercise: Exercise, source: str) -> None:
    for node in ast.parse(f"\n{source}", f"<exercise {exercise.id}>").body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == exercise.name:
            return
    raise UsageError(f"the cell does not define {exercise.name}: keep the first line of the function as it was")
