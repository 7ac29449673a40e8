"""A learner at a quiz: the only file of the quiz that reads the clock, draws at random, opens the journal and runs ranks.

Nothing is remembered here: each function reads the journal again, so that a restarted kernel, a reloaded page and a second
notebook go on with the same attempt.
"""

import secrets
from datetime import UTC, datetime

from ckptlab.course import content, journal
from ckptlab.course.exercise import read as read_exercise
from ckptlab.course.exercise import run_answer
from ckptlab.course.quiz.attempts import Sheet, Standing, fold, sheet_of, standing
from ckptlab.course.quiz.bank import bank_files, read
from ckptlab.course.quiz.draw import FINAL, Drawn, Paper
from ckptlab.course.quiz.grade import grade
from ckptlab.course.quiz.passing import Result, asked_for, passed, sources
from ckptlab.errors import CkptlabError, UsageError


class AttemptGone(CkptlabError):
    """An attempt is not in the journal any more: its lab was reset, or the journal was moved away."""


def papers() -> list[str]:
    """Return the names of all quizzes: one a bank, and the final."""
    banks = list(bank_files())
    return [*banks, FINAL] if banks else []


def open_paper(name: str) -> Paper:
    """Read a quiz.

    Raises:
        UsageError: there is no such quiz, or a bank is not as it should be.
    """
    files = bank_files()
    if name == FINAL and files:
        return Paper(name=FINAL, title="Final quiz", banks=tuple(map(read, files.values())))
    if not isinstance(name, str) or name not in files:
        raise UsageError(f"there is no quiz {name!r}; there are {', '.join(papers()) or 'none'}")
    bank = read(files[name])
    return Paper(name=name, title=bank.title, banks=(bank,))


def look(paper: Paper, events: list[journal.Event] | None = None) -> Standing:
    """Say how the learner stands now, from the journal's events or from those given."""
    events = journal.read() if events is None else events
    return standing(paper, fold(events).get(paper.name, []), datetime.now(UTC))


def begin(paper: Paper) -> Standing:
    """Begin an attempt unless one is open; while the final's pause lasts nothing begins, as the standing says."""
    now = look(paper)
    if now.open or now.wait:
        return now
    seed = now.seed or secrets.token_hex(8)
    journal.append("quiz-begin", quiz=paper.name, seed=seed, number=now.number, sha256=paper.sha256)
    return look(paper)


def answer(paper: Paper, sheet: Sheet, drawn: Drawn, given: object) -> Sheet:
    """Keep an answer and return the sheet with it; when there was one already, from another notebook, that one stands.

    Raises:
        UsageError: it is no answer to this question; nothing was kept.
        AttemptGone: the attempt is not in the journal any more; nothing was kept.
        OSError: it could not be written; nothing was kept.
    """
    grade(drawn, given)
    bank, question = drawn.key
    attempt = {"quiz": paper.name, "seed": sheet.attempt.seed, "number": sheet.attempt.number}
    _again(paper, sheet)
    journal.append("quiz-answer", **attempt, bank=bank, question=question, given=given)
    return _again(paper, sheet)


def _again(paper: Paper, sheet: Sheet) -> Sheet:
    """Read an attempt again."""
    for one in fold(journal.read(lambda text: None)).get(paper.name, []):
        if (one.seed, one.number) == (sheet.attempt.seed, sheet.attempt.number):
            return sheet_of(paper, one)
    raise AttemptGone(f"the attempt at quiz {paper.name} is not in the journal any more; begin again")


def exercise_is_right(id_: str) -> bool:
    """Whether the journal has an answer of an exercise that is right when it runs again."""
    source = sources(journal.read(lambda text: None), [id_]).get(id_)
    return source is not None and _run(id_, source).startswith("right")


def result() -> Result:
    """Grade and run everything again that passing the course asks for. Takes about a second an exercise."""
    events = journal.read(lambda text: None)
    exercises = list(content.exercises())
    ran_again = {id_: _run(id_, source) for id_, source in sources(events, asked_for(exercises)).items()}
    return passed(events, open_paper(FINAL), exercises, ran_again)


def _run(id_: str, source: str) -> str:
    try:
        return run_answer(read_exercise(content.exercise_file(id_)), source).state
    except (SyntaxError, RecursionError, MemoryError, UsageError):  # kept when the exercise was another, or by somebody else
        return "wrong"
