"""What an instructor is shown: results as rows for a spreadsheet, and what the room fell for. Pure."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ckptlab.course.exercise import Exercise
from ckptlab.course.grading.result import Graded

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would compute a cell that begins so
_MOST_CHARACTERS = 100  # of what a wrong answer means


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongAnswer:
    """A named wrong answer and how many learners have given it."""

    exercise: str
    name: str
    learners: int
    meaning: str  # how its docstring begins

    def to_json(self) -> dict[str, object]:
        """Return it for a program."""
        return asdict(self)


def wrong_answers(results: Sequence[Graded], exercises: Mapping[str, Exercise]) -> list[WrongAnswer]:
    """Count the named wrong answers, each once a learner; the most frequent first, then in the order of the course."""
    given = Counter((id_, name) for graded in results for id_, names in graded.fell_for.items() for name in names)
    rows = [
        WrongAnswer(exercise=id_, name=name, learners=given[id_, name], meaning=_begin(meaning))
        for id_, exercise in exercises.items()
        for name, meaning in exercise.wrong.items()
        if given[id_, name]
    ]
    return sorted(rows, key=lambda row: -row.learners)


def to_csv(results: Sequence[Graded]) -> bytes:
    """Return a row a file, under a head; no cell is one that a spreadsheet would compute."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["file", *results[0].outcomes, "right", "tried", "marks"])
    for graded in results:
        states = [outcome.state for outcome in graded.outcomes.values()]
        marks = "; ".join((*graded.faults, *graded.marks))
        writer.writerow([_plain(graded.file), *states, graded.num_right, graded.num_tried, _plain(marks)])
    return text.getvalue().encode("utf-8", "backslashreplace")  # a file's name may be no text


def _plain(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _begin(meaning: str) -> str:
    if len(meaning) <= _MOST_CHARACTERS:
        return meaning
    return f"{meaning[:_MOST_CHARACTERS].rpartition(' ')[0]} …"
