"""A bank of questions, one file a lab in `quizzes/`: read strictly, or refused with all that is wrong in it.

`read` is the only way to a `Bank`; what it gives has been held against `quizzes/schema.json` and against `rules`. A bank's
SHA-256 stands in every attempt, so that no answer is ever graded by another key than that of the question it was given to. It
is that of what draws and grades, and of the version: who mends a text voids no attempt, unless it is given a new version.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from ckptlab.course.content import QUIZZES
from ckptlab.course.languages import Message
from ckptlab.course.quiz import strict_yaml
from ckptlab.course.quiz.arithmetic import number
from ckptlab.course.quiz.rules import faults_of
from ckptlab.errors import UsageError

SCHEMA = QUIZZES / "schema.json"
GRADED = ("id", "type", "level", "variants", "answer", "unit", "within", "accept", "items", "pairs", "exercise")
Values = Mapping[str, str | int | float]  # what stands in the place of {names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One choice, and what is told to who chose it."""

    id: str
    text: str
    because: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Near:
    """A likely wrong answer, and the thought that leads there."""

    value: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question as it stands in its bank; which members are filled depends on `type`."""

    bank: str
    id: str
    type: str  # single, multiple, numeric, text, order, match, exercise
    level: str  # recall, explain, apply, diagnose
    read: str  # "02#boxes"
    ask: str = ""
    variants: tuple[Values, ...] = ({},)
    because: str = ""
    options: tuple[Option, ...] = ()
    answer: str = ""
    unit: str = ""
    within: Mapping[str, float] | None = None  # {"relative": 0.02} or {"absolute": 1}
    accept: tuple[str, ...] = ()
    near: tuple[Near, ...] = ()
    items: tuple[str, ...] = ()  # in the right order
    pairs: tuple[tuple[str, str], ...] = ()
    exercise: str = ""
    proof: str = ""
    source: str = ""

    def message(self, part: str, text: str, values: Values) -> Message:
        """Return one of its texts, to say: the context is "02.rows-of-last-rank.ask"."""
        return Message(f"{self.bank}.{self.id}.{part}", text, values)

    def is_near_enough(self, value: Fraction, right: Fraction) -> bool:
        """Whether a number is within the tolerance of a numeric question."""
        return abs(value - right) <= self.reach(right)

    def reach(self, right: Fraction) -> Fraction:
        """Return by how much an answer may differ from the right one."""
        ((kind, most),) = (self.within or {"absolute": 0}).items()
        return number(str(most)) * (abs(right) if kind == "relative" else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """The questions of one lab."""

    name: str  # "02"
    title: str
    version: int
    sha256: str  # of what draws and grades
    questions: tuple[Question, ...]


def bank_files() -> dict[str, Path]:
    """Return the files of all banks by name ("02"), in order."""
    return {path.stem: path for path in sorted(QUIZZES.glob("[0-9][0-9].yaml"))}


def read(path: Path) -> Bank:
    """Read a bank.

    Raises:
        UsageError: it is none; the message has a line for everything that is wrong, and where.
    """
    document: Any = strict_yaml.parse(path.read_bytes(), path.name)
    if faults := list(_faults(document, path)):
        raise UsageError("\n".join(f"{path.name}: {fault}" for fault in faults))
    name, version = document["bank"], document["version"]
    questions = tuple(_question(name, entry) for entry in document["questions"])
    sha256 = _digest(name, version, questions)
    return Bank(name=name, title=document["title"], version=version, sha256=sha256, questions=questions)


def _digest(name: str, version: int, questions: Iterable[Question]) -> str:
    kept = [[getattr(question, member) for member in GRADED] for question in questions]
    rights = [[(option.id, option.right) for option in question.options] for question in questions]
    return hashlib.sha256(json.dumps([name, version, kept, rights], sort_keys=True).encode()).hexdigest()


def _faults(document: Any, path: Path) -> Iterator[str]:
    errors = sorted(_validator().iter_errors(document), key=lambda error: list(map(str, error.absolute_path)))
    yield from (f"{_place(document, list(error.absolute_path))}{error.message[:200]}" for error in errors)
    if not errors:
        if document["bank"] != path.stem:
            yield f"it calls itself {document['bank']!r}; a bank is called as its file"
        yield from faults_of(document)


def _place(document: Any, path: list[Any]) -> str:
    """Name the question rather than its number."""
    match path:
        case ["questions", int(index), *rest]:
            entry = document["questions"][index]
            id_ = entry.get("id", index) if isinstance(entry, dict) else index
            return ": ".join([f"question {id_}", *([".".join(map(str, rest))] if rest else [])]) + ": "
        case [first, *_]:
            return f"{first}: "
    return ""


@lru_cache(maxsize=1)
def _validator() -> Any:
    """Make it only where a bank is read, and without the grammar that jsonschema would load to check formats, in 2 to 3 s."""
    unwanted = "rfc3987_syntax"
    if is_new := unwanted not in sys.modules:
        sys.modules[unwanted] = None  # type: ignore[assignment]  # importing it is an ImportError, which jsonschema expects
    try:
        from jsonschema import Draft202012Validator
    finally:
        if is_new:
            del sys.modules[unwanted]
    return Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def _question(bank: str, entry: dict[str, Any]) -> Question:
    made: dict[str, Any] = dict(entry)
    for name in ("variants", "accept", "items"):
        if name in entry:
            made[name] = tuple(entry[name])
    for name, kind in (("options", Option), ("near", Near)):
        if name in entry:
            made[name] = tuple(kind(**one) for one in entry[name])
    if "pairs" in entry:
        made["pairs"] = tuple((pair["left"], pair["right"]) for pair in entry["pairs"])
    return Question(bank=bank, **made)
