"""`ckptlab grade FOLDER`."""

import os
from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option, say, say_json, say_table
from ckptlab.course import content
from ckptlab.course.certificate.results import to_json
from ckptlab.course.exercise import read
from ckptlab.course.grading import Graded
from ckptlab.course.grading import grade as grade_folder
from ckptlab.course.grading.quizzes import QuestionCount, count_questions
from ckptlab.course.grading.report import WrongAnswer, quiz_cells, to_csv, wrong_answers
from ckptlab.course.grading.result import NOT_RIGHT, NOT_RUN
from ckptlab.course.progress.keeping import replace_file
from ckptlab.errors import UsageError

RESULTS = ("results.csv", "results.json")


@click.command(cls=Door)
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def grade(folder: Path, as_json: bool) -> int:
    """Run the answers that learners have handed in, every *.jsonl in FOLDER, and say what is right.

    Of each exercise the newest answer that was right is run again, on fresh ranks; what never was right is not.
    The quizzes are graded again too. FOLDER/results.csv is replaced, with one row for each file. Then come the wrong answers
    that the course has a name for, the most frequent first; and for each question of the quizzes how many answered it, how
    many were right at their first try, and which wrong option was chosen most.

    FOLDER/results.json is replaced; it has what 'ckptlab certificate issue' needs of those who passed. The name on a
    certificate is the file's name without .jsonl, unless you write another into results.json. Look at what is marked before
    you issue.

    Learners hand in programs, and these run with your rights. On Linux time, memory, file size and environment are bounded
    against accidents (as root not the number of processes); on macOS count on the time alone. A hostile answer can do whatever
    you can: read and change your files, end your processes, forge a verdict. So grade on a machine or with an account that
    holds nothing else, keep a copy of FOLDER elsewhere, and look at the answers that are marked "read this one". If the program
    ends early, results.csv has the files before, and the last line tells whose answer ran.
    """
    sheet, claims = (folder / name for name in RESULTS)
    for file in (sheet, claims):
        if folder.is_dir() and (file.is_dir() or not os.access(folder, os.W_OK)):  # said before the long work, not after
            raise UsageError(f"{file} cannot be written; give a folder that you may write to")
    exercises = {id_: read(path) for id_, path in content.exercises().items()}
    results = grade_folder(
        folder,
        exercises,
        tell=lambda text: say(text, err=True),
        keep=lambda results: replace_file(sheet, to_csv(results)),
    )
    wrong = wrong_answers(results, exercises)
    questions = count_questions(graded.given for graded in results)
    if as_json:
        rows = {"wrong_answers": [row.to_json() for row in wrong], "questions": [row.to_json() for row in questions]}
        say_json({"results": [graded.to_json() for graded in results], **rows})
    else:
        _say_results(results, wrong)
        _say_quizzes(results, questions)
    replace_file(sheet, to_csv(results))
    replace_file(claims, to_json((graded.file, graded.course) for graded in results))
    say(f"{len(results)} file{'s are' if len(results) > 1 else ' is'} graded: {sheet}", err=as_json)
    say(f"For 'ckptlab certificate issue': {claims}", err=as_json)
    return 0


def _say_results(results: list[Graded], wrong: list[WrongAnswer]) -> None:
    for graded in results:
        failed = [(id_, found) for id_, found in graded.outcomes.items() if found.state in (NOT_RIGHT, NOT_RUN)]
        told = [f"{id_}: {found.state}: {found.text.removeprefix(f'{id_}: ')}" for id_, found in failed]
        for remark in (*graded.faults, *told, *graded.marks):
            say(f"{graded.file}: {remark}")
    if wrong:
        say("learners  exercise  wrong answer, and what it means")
        for row in wrong:
            say(f"{row.learners:<8}  {row.exercise:<8}  {row.name}")
            say(f"{'':20}{row.meaning}")
    else:
        say("None of the wrong answers that the course has a name for was given.")


def _say_quizzes(results: list[Graded], questions: list[QuestionCount]) -> None:
    if questions:
        rows = [(row.answered, row.right, f"{row.bank} {row.question}", _most_chosen(row)) for row in questions]
        say_table([("answered", "right", "question", "most chosen of the wrong"), *rows])
    else:
        say("No question of the quizzes was answered.")
    learners = [(graded.num_right, graded.num_tried, *quiz_cells(graded), graded.file) for graded in results]
    say_table([("right", "tried", "final", "passed", "file"), *learners])


def _most_chosen(row: QuestionCount) -> str:
    return f"{row.wrong} ({row.chosen})" if row.wrong else "-"
