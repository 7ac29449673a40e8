"""`ckptlab quiz take QUIZ`, `show`, `check`, `export`."""

from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option, say, say_json, say_table
from ckptlab.cli.quiz_take import take_quiz
from ckptlab.course import journal
from ckptlab.course.choice import take_choice
from ckptlab.course.content import exercises
from ckptlab.course.languages import Message, label, tell
from ckptlab.course.markup import about_drafts, heading_lines
from ckptlab.course.quiz import gift, proof, sitting, survey, words
from ckptlab.course.quiz.bank import bank_files, read
from ckptlab.course.quiz.draw import FINAL, Paper
from ckptlab.course.quiz.passing import asked_for, passed, sources
from ckptlab.errors import UsageError


@click.group()
def quiz() -> None:
    """Take the quizzes of the course, see what you reached; for authors: check the questions, export them."""
    take_choice()


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
    papers = [sitting.open_paper(name) for name in sitting.papers()]
    rows = [_reached(paper, events) for paper in papers]
    there = asked_for(exercises())
    claimed = dict.fromkeys(sources(events, there), "right")  # by the journal: nothing runs again here
    result = passed(events, sitting.open_paper(FINAL), there, claimed)
    if as_json:
        say_json({"quizzes": rows, "exercises_missing": result.missing, "passed": result.has_passed})
        return 0
    head = _head()
    told = [
        (paper.name, label(words.bare_title(paper)), *list(row.values())[2:]) for paper, row in zip(papers, rows, strict=True)
    ]
    say_table([*heading_lines(head), *told])
    for note in (*about_drafts(head), tell(words.course(result))):
        say(str(note))
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


def _head() -> list[Message]:
    return [
        Message("quiz.head.quiz", "quiz"),
        Message("quiz.head.title", "title"),
        Message("quiz.head.questions", "questions"),
        Message("quiz.head.attempts", "attempts"),
        Message("quiz.head.best", "best"),
    ]


def _reached(paper: Paper, events: list[journal.Event]) -> dict[str, object]:
    standing = sitting.look(paper, events)
    best = f"{words.points(standing.best.points)}/{len(standing.best.drawn)}" if standing.best else "-"
    attempts = len(standing.finished) + (standing.open is not None)
    return {"quiz": paper.name, "title": paper.title, "questions": paper.num_questions, "attempts": attempts, "best": best}
