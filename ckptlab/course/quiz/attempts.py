"""What a journal says of the attempts at the quizzes. Pure: events in, facts out, nothing trusted that is not well formed.

Events are `quiz-begin` (quiz, seed, number, sha256 by bank) and `quiz-answer` (quiz, seed, number, bank, question, given).
An attempt is (seed, number): two notebooks that begin at once begin the same one. The first answer to a question counts. An
attempt ends when all its questions are answered; one whose banks have changed since has ended too, and counts for nothing,
because it cannot be graded again. A reset of a lab forgets the attempts at its quiz.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction

from ckptlab.course.journal import Event
from ckptlab.course.quiz.draw import FINAL, Drawn, Paper
from ckptlab.course.quiz.grade import Mark, grade
from ckptlab.errors import UsageError

FINAL_PAUSE = timedelta(minutes=10)
MOST_NUMBER = 10**9  # of an attempt; nobody makes more, and Python does not print numbers of any length


@dataclass(slots=True)
class Attempt:
    """One attempt at a quiz, as the journal has it."""

    quiz: str
    seed: str
    number: int
    sha256: Mapping[str, object]
    answers: dict[tuple[str, str], list[Event]] = field(default_factory=dict)  # by bank and question, as they came


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that counts, graded again."""

    given: object
    at: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """An attempt with its questions, and the answers to those that are answered."""

    attempt: Attempt
    drawn: tuple[Drawn, ...]
    answers: tuple[Answer | None, ...]

    @property
    def next(self) -> int | None:
        """Return the number, from 0, of the first question without an answer."""
        return self.answers.index(None) if None in self.answers else None

    @property
    def points(self) -> Fraction:
        """Return the sum of the credits; a question is worth one point."""
        return sum((answer.mark.credit for answer in self.answers if answer), Fraction(0))

    @property
    def num_right(self) -> int:
        """Return how many answers have full credit."""
        return sum(answer.mark.is_right for answer in self.answers if answer)

    @property
    def score(self) -> Fraction:
        """Return the points as a fraction of what could be had."""
        return self.points / len(self.drawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a learner stands in one quiz."""

    open: Sheet | None  # to go on with
    finished: tuple[Sheet, ...]
    is_outdated: bool  # the questions are others since the last attempt, which counts for nothing any more
    seed: str | None  # for the next attempt, None for a new one
    number: int  # of the next attempt
    wait: timedelta  # until it may begin

    @property
    def best(self) -> Sheet | None:
        """Return the finished attempt with the most points."""
        return best_of(self.finished)


def fold(events: Iterable[Event]) -> dict[str, list[Attempt]]:
    """Return the attempts by quiz, in the order in which they began."""
    attempts: dict[str, dict[tuple[str, int], Attempt]] = {}
    for event in events:
        quiz, seed, number = event.get("quiz"), event.get("seed"), event.get("number")
        if event["kind"] == "reset" and isinstance(lab := event.get("lab"), str):
            attempts.pop(lab, None)
        if not isinstance(quiz, str) or not isinstance(seed, str) or type(number) is not int or not 1 <= number < MOST_NUMBER:
            continue
        there = attempts.setdefault(quiz, {})
        if event["kind"] == "quiz-begin" and isinstance(sha256 := event.get("sha256"), dict):
            there.setdefault((seed, number), Attempt(quiz, seed, number, sha256))
        elif event["kind"] == "quiz-answer" and (seed, number) in there:
            _take(there[seed, number], event)
    return {quiz: list(there.values()) for quiz, there in attempts.items()}


def _take(attempt: Attempt, event: Event) -> None:
    bank, question = event.get("bank"), event.get("question")
    if isinstance(bank, str) and isinstance(question, str):
        attempt.answers.setdefault((bank, question), []).append(event)


def sheet_of(paper: Paper, attempt: Attempt) -> Sheet:
    """Draw the questions of an attempt again, and grade its answers again."""
    drawn = paper.draw(attempt.seed, attempt.number)
    answers = tuple(_first(one, attempt.answers.get(one.key, ())) for one in drawn)
    return Sheet(attempt=attempt, drawn=drawn, answers=answers)


def best_of(sheets: Iterable[Sheet]) -> Sheet | None:
    """Return the one with the most points of those that are finished, the first of these."""
    return max((sheet for sheet in sheets if sheet.next is None), key=lambda sheet: sheet.score, default=None)


def _first(drawn: Drawn, events: Iterable[Event]) -> Answer | None:
    """Return the first that is an answer; what no one can have given is none."""
    for event in events:
        with suppress(UsageError):
            return Answer(event.get("given"), str(event["at"]), grade(drawn, event.get("given")))
    return None


def standing(paper: Paper, attempts: Sequence[Attempt], now: datetime) -> Standing:
    """Say how a learner stands in a quiz, from the attempts at it."""
    sheets = [sheet_of(paper, attempt) for attempt in attempts if attempt.sha256 == paper.sha256]
    finished = tuple(sheet for sheet in sheets if sheet.next is None)
    unfinished = [sheet for sheet in sheets if sheet.next is not None]
    wait = max((_wait(sheet, now) for sheet in finished if paper.name == FINAL), default=timedelta())
    is_begun = any(any(sheet.answers) for sheet in unfinished)
    last = attempts[-1] if attempts else None
    return Standing(
        open=unfinished[0] if unfinished and (is_begun or not wait) else None,
        finished=finished,
        is_outdated=last is not None and last.sha256 != paper.sha256,
        seed=last.seed if last else None,
        number=last.number + 1 if last else 1,
        wait=wait,
    )


def _wait(sheet: Sheet, now: datetime) -> timedelta:
    """Return what is left of the pause; answers of a clock that was ahead do not make it longer."""
    waits = [timedelta()]
    for answer in filter(None, sheet.answers):
        with suppress(ValueError, TypeError):  # no time, or one without a zone
            since = now - datetime.fromisoformat(answer.at)
            waits.append(FINAL_PAUSE - since if since >= timedelta() else timedelta())
    return max(waits)
