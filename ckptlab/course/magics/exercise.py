"""`%%exercise 2.1`: the cell is the learner's answer; the verdict is printed and kept."""

import io
import os
import re
import traceback
from contextlib import redirect_stdout

from IPython.core.interactiveshell import InteractiveShell

from ckptlab.course import content
from ckptlab.course.exercise import read, try_answer
from ckptlab.course.exercise.judge import define
from ckptlab.course.languages import say
from ckptlab.errors import UsageError, WorldError

KEPT = "progress.save() makes a copy of your progress that you can download."
ON_BINDER = "Binder forgets all of this after ten idle minutes. progress.save() makes a copy of it that you can download."


def run_exercise(shell: InteractiveShell, line: str, cell: str) -> None:
    """Try the cell as an answer; of an exercise without ranks, define its function in the notebook too."""
    if not re.fullmatch(r"\d+\.\d+", id_ := line.strip()):
        raise UsageError("write the exercise's number after %%exercise, as in: %%exercise 2.1")
    exercise = read(content.exercise_file(id_))
    try:
        verdict = try_answer(exercise, cell)
    except KeyboardInterrupt:
        raise WorldError(f"{id_}: interrupted; this attempt does not count") from None
    except SyntaxError as error:
        raise in_words(error) from None
    print(verdict.printed, end="")
    print(verdict.text)
    if exercise.in_kernel and not verdict.ended:  # what ended a rank would end the kernel
        _define_here(shell, id_, cell)
    if verdict.state.startswith("right"):
        print(say("exercise.kept", ON_BINDER if "BINDER_LAUNCH_HOST" in os.environ else KEPT))


def in_words(error: SyntaxError) -> UsageError:
    """Turn a syntax error of a cell into an error that shows the learner's line and nothing of the kernel."""
    return UsageError("".join(traceback.format_exception_only(error)).rstrip())


def _define_here(shell: InteractiveShell, id_: str, cell: str) -> None:
    try:
        with redirect_stdout(io.StringIO()):  # what it prints was shown already
            define(cell, f"<exercise {id_}>", shell.user_ns)
    except (Exception, SystemExit) as error:
        print(f"The function could not be defined in this notebook: {type(error).__name__}: {error}")
