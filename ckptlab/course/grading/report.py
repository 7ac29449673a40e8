"""What an instructor is shown: results as rows for a spreadsheet, and what the room fell for. Pure."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ckptlab.course.exercise import Exercise
from ckptlab.course.grading.result import Graded

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", " ", "\uff1d")  # a spreadsheet would compute a cell that begins so


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongAnswer:
    """A named wrong answer and how many learners have given it."""

    exercise: str
    name: str
    learners: int
    meaning: str  # what a learner is told

    def to_json(self) -> dict[str, object]:
        """Return it for a program."""
        return asdict(self)


def wrong_answers(results: Sequence[Graded], exercises: Mapping[str, Exercise]) -> list[WrongAnswer]:
    """Count the named wrong answers, each once a learner; the most frequent first, then in the order of the course."""
    given = Counter((id_, name) for graded in results for id_, names in graded.fell_for.items() for name in names)
    rows = [
        WrongAnswer(exercise=id_, name=name, learners=given[id_, name], meaning=meaning)
        for id_, exercise in exercises.items()
        for name, meaning in exercise.wrong.items()
        if given[id_, name]
    ]
    return sorted(rows, key=lambda row: -row.learners)


def to_csv(results: Sequence[Graded]) -> bytes:
    """Return one row for each file, under a head; no cell is one that a spreadsheet would compute."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(["file", *results[0].outcomes, "right", "tried", "final", "passed", "marks"])
    for graded in results:
        states = [outcome.state for outcome in graded.outcomes.values()]
        marks = "; ".join((*graded.faults, *graded.marks))
        counts = [graded.num_right, graded.num_tried, *quiz_cells(graded)]
        writer.writerow([_plain(graded.file), *states, *counts, _plain(marks)])
    return text.getvalue().encode()


def quiz_cells(graded: Graded) -> tuple[str, str]:
    """Return what is shown of the final, and whether the course is passed."""
    percent = graded.final_percent
    return "" if percent is None else f"{percent} %", "yes" if graded.course.has_passed else "no"


def _plain(cell: str) -> str:
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in cell)
    return f"'{text}" if cell.startswith(_FORMULA) else text
