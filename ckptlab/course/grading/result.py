"""`Graded`: what is known of one file when it is graded. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from ckptlab.course.grading.quizzes import Given, Key
from ckptlab.course.quiz.passing import Result

RIGHT = {"right": "right", "right, but": "right, over budget"}  # by what a verdict calls it
NOT_RIGHT = "not right when run again"
NOT_RUN = "could not be run"
TRIED = "tried, not right yet"
UNTRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One exercise of one learner."""

    state: str  # a value of RIGHT, or another of the words above
    text: str = ""  # what running the answer gave, in one line; "" when there was none to run


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """One file: an outcome for every exercise of the course, and what a person should know or look at."""

    file: str  # its name, which is all that says whose it is
    outcomes: Mapping[str, Outcome]  # by exercise id
    fell_for: Mapping[str, tuple[str, ...]]  # the named wrong answers that were given on the way, by exercise id
    given: Mapping[Key, Given]  # first answers to quiz questions
    course: Result  # the final, and whether the course is passed
    faults: tuple[str, ...]  # what of the file could not be read, or does not fit to this course
    marks: tuple[str, ...]  # what to read or to compare

    @property
    def num_right(self) -> int:
        """How many exercises are right, over budget or not."""
        return sum(outcome.state in RIGHT.values() for outcome in self.outcomes.values())

    @property
    def num_tried(self) -> int:
        """How many exercises were tried, right or not."""
        return sum(outcome.state != UNTRIED for outcome in self.outcomes.values())

    @property
    def final_percent(self) -> int | None:
        """What was reached in the final, rounded down; None without a finished attempt."""
        return None if self.course.score is None else int(self.course.score * 100)

    def to_json(self) -> dict[str, object]:
        """Return all of it for a program."""
        return {
            "file": self.file,
            "right": self.num_right,
            "tried": self.num_tried,
            "final_percent": self.final_percent,
            "passed": self.course.has_passed,
            "exercises": {id_: {"state": outcome.state, "text": outcome.text} for id_, outcome in self.outcomes.items()},
            "fell_for": {id_: list(names) for id_, names in self.fell_for.items()},
            "faults": list(self.faults),
            "marks": list(self.marks),
        }
