"""The quizzes of one file, graded again; and what a room answered, question by question. Pure, and no answer is believed.

Who hands in may write anything: a file can hold a thousand attempts, and each is drawn again, so there is an end to them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from ckptlab.course.journal import Event
from ckptlab.course.quiz.attempts import Answer, Attempt, Sheet, best_of, fold, sheet_of
from ckptlab.course.quiz.draw import Drawn, Paper

MOST_ATTEMPTS = 100  # of one quiz that are graded
Key = tuple[str, str]  # bank and question


@dataclass(frozen=True, slots=True)
class Given:
    """A learner's first answer to a question, in whatever quiz."""

    is_right: bool
    wrong: tuple[str, ...] = ()  # the options that were chosen and are not right, by id


@dataclass(frozen=True, slots=True, kw_only=True)
class QuizClaims:
    """What a file's attempts are worth today."""

    final: Sheet | None = None  # the best finished attempt
    given: Mapping[Key, Given]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionCount:
    """What became of one question: each learner counts once, with the first answer."""

    bank: str
    question: str
    answered: int
    right: int
    wrong: str  # the option that was chosen most of those that are not right; "" when none was
    chosen: int  # by how many

    def to_json(self) -> dict[str, object]:
        """Return it for a program."""
        return asdict(self)


def grade_quizzes(events: Iterable[Event], papers: Sequence[Paper]) -> QuizClaims:
    """Grade the attempts at these quizzes, the last of which is the final."""
    attempts = fold(events)
    sheets = {paper.name: list(_sheets(paper, attempts.get(paper.name, []))) for paper in papers}
    given: dict[Key, Given] = {}
    for sheet in (sheet for of_quiz in sheets.values() for sheet in of_quiz):
        for drawn, answer in zip(sheet.drawn, sheet.answers, strict=True):
            if answer and answer.given is not None:
                given.setdefault(drawn.key, _given(drawn, answer))
    return QuizClaims(
        final=best_of(sheets[papers[-1].name]),
        given=given,
        faults=tuple(fault for paper in papers for fault in _faults(paper, attempts.get(paper.name, []))),
    )


def count_questions(room: Iterable[Mapping[Key, Given]]) -> list[QuestionCount]:
    """Count a room's first answers to every question that anybody answered, by bank and name."""
    answers: dict[Key, list[Given]] = {}
    for learner in room:
        for key, given in learner.items():
            answers.setdefault(key, []).append(given)
    return [_count(key, answers[key]) for key in sorted(answers)]


def _sheets(paper: Paper, attempts: Sequence[Attempt]) -> Iterator[Sheet]:
    yield from (sheet_of(paper, attempt) for attempt in _gradable(paper, attempts)[:MOST_ATTEMPTS])


def _gradable(paper: Paper, attempts: Sequence[Attempt]) -> list[Attempt]:
    return [attempt for attempt in attempts if attempt.sha256 == paper.sha256 and attempt.answers]


def _faults(paper: Paper, attempts: Sequence[Attempt]) -> Iterator[str]:
    if others := sum(attempt.sha256 != paper.sha256 for attempt in attempts):
        yield f"quiz {paper.name}: attempts at other questions than today's, which are not graded: {others:,}"
    if (number := len(_gradable(paper, attempts))) > MOST_ATTEMPTS:
        yield f"quiz {paper.name}: {number:,} attempts; only the first {MOST_ATTEMPTS} are graded"


def _given(drawn: Drawn, answer: Answer) -> Given:
    chosen = answer.given if isinstance(answer.given, list) else [answer.given]
    wrong = tuple(option.id for option in drawn.question.options if not option.right and option.id in chosen)
    return Given(answer.mark.is_right, wrong)


def _count(key: Key, answers: Sequence[Given]) -> QuestionCount:
    chosen = Counter(option for answer in answers for option in answer.wrong)
    ((wrong, number),) = chosen.most_common(1) or [("", 0)]
    right = sum(answer.is_right for answer in answers)
    return QuestionCount(bank=key[0], question=key[1], answered=len(answers), right=right, wrong=wrong, chosen=number)
