"""`RUN/PREEMPTED`: a signal has stopped the run, which is not over. One JSON line, from then until the run is opened again."""

import json
from pathlib import Path

from ckptlab.format.names import PREEMPTED
from ckptlab.storage import posix


def write_mark(run: Path, step: int | None, signal: str, rank: int) -> None:
    """Say that the run was stopped after `step`, None if that is not saved, because a rank got a signal (coordinator)."""
    remove_mark(run)
    posix.write_file(run / PREEMPTED, f"{json.dumps({'step': step, 'signal': signal, 'rank': rank})}\n".encode())


def remove_mark(run: Path) -> None:
    """Say that the run goes on (coordinator)."""
    posix.remove_file(run / PREEMPTED)


def has_mark(run: Path) -> bool:
    """Whether a signal has stopped the run, and nothing has gone on with it since."""
    return posix.size_of(run / PREEMPTED) is not None
