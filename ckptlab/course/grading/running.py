"""Run an answer of somebody else: fresh ranks with bounds, a folder that is deleted, an environment without secrets."""

import ast
import ctypes
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ckptlab.course.exercise import Exercise, run_answer
from ckptlab.course.grading.bounds import judge_in_bounds
from ckptlab.course.grading.result import NOT_RIGHT, NOT_RUN, Outcome
from ckptlab.errors import UsageError

MOST_CHARACTERS = 100_000  # of an answer's source
_MOST_SHOWN = 300  # of what is told of it
_STATES = {"right": "right", "right, but": "right, over budget"}
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
_PR_SET_CHILD_SUBREAPER = 36


def run_again(exercise: Exercise, source: str, seconds: float | None) -> Outcome:
    """Run an answer that is claimed right. Whatever it does is an outcome.

    Args:
        exercise: what was answered.
        source: the answer.
        seconds: for each world; None for as many as a learner has.
    """
    if fault := _no_answer(source):
        return Outcome(NOT_RIGHT, _short(fault))
    fault = ""
    for _ in range(2):  # an answer before may have left the machine busy for a moment
        try:
            return _run(exercise, source, seconds)
        except UsageError as error:
            return Outcome(NOT_RIGHT, _short(str(error)))
        except Exception as error:  # no ranks could be started, or they sent what is no verdict: a person has to look
            fault = f"{type(error).__name__}: {error}"
    return Outcome(NOT_RUN, _short(fault))


@contextmanager
def strays_ended() -> Iterator[None]:
    """On leaving, end what the ranks have started and left behind, even if it has gone into the background (Linux)."""
    if sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # so that these come to be children of this process
    before = _children_of_other_sessions()
    try:
        yield
    finally:
        while strays := _children_of_other_sessions() - before:  # their children come next
            for pid in strays:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _run(exercise: Exercise, source: str, seconds: float | None) -> Outcome:
    with (
        TemporaryDirectory(prefix="ckptlab-grade-", ignore_cleanup_errors=True) as folder,
        _bare_environment(folder),
        strays_ended(),
        warnings.catch_warnings(action="ignore"),  # of the parser, about the answer
    ):
        verdict = run_answer(exercise, source, seconds=seconds, on_rank=judge_in_bounds)
    return Outcome(_STATES.get(verdict.state, NOT_RIGHT), _short(verdict.text))


def _no_answer(source: str) -> str | None:
    """Say why source is not even tried: this process parses it, and the parser has its bounds too."""
    if len(source) > MOST_CHARACTERS:
        return f"it has {len(source):,} characters; at most {MOST_CHARACTERS:,} are run"
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it is no Python: {error}"
    return None


@contextmanager
def _bare_environment(folder: str) -> Iterator[None]:
    """Let ranks inherit only what they need: no keys and tokens, and as home an empty folder."""
    before = dict(os.environ)
    homes = dict.fromkeys(("HOME", "CKPTLAB_HOME", "TMPDIR"), folder)
    os.environ.clear()
    os.environ.update({name: before[name] for name in _KEPT if name in before} | homes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _children_of_other_sessions() -> set[int]:
    """Return this process's children in other sessions: ranks have their own, what starts the ranks does not."""
    mine, session, found = os.getpid(), os.getsid(0), set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == mine and int(fields[3]) != session:
                found.add(int(process.name))
    return found


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]} …"
