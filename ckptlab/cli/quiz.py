"""`ckptlab quiz take QUIZ`, `show`, `check`, `export`."""

from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option, say, say_json, say_table
from ckptlab.cli.quiz_take import take_quiz
from ckptlab.course import journal
from ckptlab.course.content import exercises
from ckptlab.course.progress.fold import fold as fold_exercises
from ckptlab.course.quiz import gift, proof, sitting, survey, words
from ckptlab.course.quiz.bank import bank_files, read
from ckptlab.course.quiz.passing import asked_for
from ckptlab.errors import UsageError


@click.group()
def quiz() -> None:
    """Take the quizzes of the course, see what you reached; for authors: check the questions, export them."""


@quiz.command(cls=Door)
@click.argument("name", metavar="QUIZ")
def take(name: str) -> int:
    """Take QUIZ, a lab's two digits or "final", in the terminal; what is answered is kept when you stop in between."""
    take_quiz(sitting.open_paper(name))
    return 0


@quiz.command(cls=Door)
@json_option
def show(as_json: bool) -> int:
    """Show what you reached, and what is missing to pass the course."""
    events = journal.read(lambda text: say(text, err=True))
    rows = [_reached(name, events) for name in sitting.papers()]
    facts = fold_exercises(events)
    missing = [id_ for id_ in asked_for(exercises()) if not facts.tried(id_).state.startswith("right")]
    if as_json:
        say_json({"quizzes": rows, "exercises_missing": missing})
        return 0
    say_table([("quiz", "title", "questions", "attempts", "best"), *(tuple(row.values()) for row in rows)])
    say(f"Exercises that passing the course still asks for: {', '.join(missing) or 'none'}")
    return 0


@quiz.command(cls=Door)
def check() -> int:
    """Read every bank strictly, run every proof in a rank, and count the questions; 1 when anything is wrong."""
    found = survey.survey(bank_files().values())
    faults = [*found.faults, *(fault for bank in found.banks for fault in proof.faults(bank))]
    for head, rows in found.tables():
        say(head)
        say_table(rows, indent="  ")
    for fault in faults:
        say(f"wrong: {fault}")
    say("All banks are as they should be." if not faults else f"{len(faults)} things are wrong.")
    return 1 if faults else 0


@quiz.command(cls=Door)
@click.argument("bank")
@click.argument("file", type=click.Path(path_type=Path))
def export(bank: str, file: Path) -> int:
    """Write the questions of BANK to FILE in Moodle's GIFT format, each variant as a question."""
    if bank not in bank_files():
        raise UsageError(f"there is no bank {bank!r}; there are {', '.join(bank_files())}")
    text, num_questions = gift.export(read(bank_files()[bank]))
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise UsageError(f"{file} is there already; name another file, or remove it") from None
    say(f"{num_questions} questions are in {file}. Exercises, which only run here, are left out.")
    return 0


def _reached(name: str, events: list[journal.Event]) -> dict[str, object]:
    paper = sitting.open_paper(name)
    standing = sitting.look(paper, events)
    best = f"{words.points(standing.best.points)} of {len(standing.best.drawn)}" if standing.best else "-"
    attempts = len(standing.finished) + (standing.open is not None)
    return {"quiz": name, "title": paper.title, "questions": paper.num_questions, "attempts": attempts, "best": best}
