"""`ckptlab grade FOLDER`."""

import os
from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option, say, say_json
from ckptlab.course import content
from ckptlab.course.exercise import read
from ckptlab.course.grading import Graded
from ckptlab.course.grading import grade as grade_folder
from ckptlab.course.grading.report import WrongAnswer, to_csv, wrong_answers
from ckptlab.course.grading.result import NOT_RIGHT, NOT_RUN
from ckptlab.course.progress.keeping import replace_file
from ckptlab.errors import UsageError

RESULTS = "results.csv"


@click.command(cls=Door)
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def grade(folder: Path, as_json: bool) -> int:
    """Run the answers that learners have handed in, every *.jsonl in FOLDER, and say what is right.

    Of each exercise the newest answer that was right is run again, on fresh ranks; what never was right is not.
    FOLDER/results.csv is replaced, with one row for each file. Then come the wrong answers that the course has a name for, the
    most frequent first.

    Learners hand in programs, and these run with your rights. On Linux time, memory, file size and environment are bounded
    against accidents (as root not the number of processes); on macOS count on the time alone. A hostile answer can do whatever
    you can: read and change your files, end your processes, forge a verdict. So grade on a machine or with an account that
    holds nothing else, keep a copy of FOLDER elsewhere, and look at the answers that are marked "read this one". If the program
    ends early, results.csv has the files before, and the last line tells whose answer ran.
    """
    file = folder / RESULTS
    if folder.is_dir() and (file.is_dir() or not os.access(folder, os.W_OK)):  # said before the long work, not after
        raise UsageError(f"{file} cannot be written; give a folder that you may write to")
    exercises = {id_: read(path) for id_, path in content.exercises().items()}
    results = grade_folder(
        folder,
        exercises,
        tell=lambda text: say(text, err=True),
        keep=lambda results: replace_file(file, to_csv(results)),
    )
    wrong = wrong_answers(results, exercises)
    if as_json:
        say_json({"results": [graded.to_json() for graded in results], "wrong_answers": [row.to_json() for row in wrong]})
    else:
        _say_results(results, wrong)
    replace_file(file, to_csv(results))
    say(f"{len(results)} file{'s are' if len(results) > 1 else ' is'} graded: {file}", err=as_json)
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
