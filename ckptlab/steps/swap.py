"""Put another form of a committed step into its place, so that a kill at any moment leaves one whole step.

Where the system lets two directories change places at one moment, that is all. Elsewhere the step goes to `.was-step-...`, and
if a kill comes then, whoever opens the run next puts it back: see `settle_shrinks`. A run that is in use would not do that.
"""

import secrets
from pathlib import Path

from ckptlab.errors import StepError
from ckptlab.format.manifest import Manifest
from ckptlab.format.names import aside_name
from ckptlab.steps.steps import base_fault, read_step
from ckptlab.storage import RunLock, posix


def swap(path: Path, manifest: Manifest, work: Path, small: Manifest, is_newest: bool) -> Path:
    """Put what is in `work`, complete and durable, in the step's place; return where the former one is now, to be removed.

    Raises:
        StepError: the step has changed meanwhile, or its run was opened and may delete, or load, what this needs.
    """
    lock = taken(path.parent)
    try:
        if lock is None and (is_newest or small.base is not None):
            raise StepError(f"{path.parent} was opened meanwhile; {path.name} is left as it is")
        if read_step(path).manifest != manifest:
            raise StepError(f"{path} has changed meanwhile; it is left as it is")
        if (fault := base_fault(path, small)) is not None:
            raise StepError(f"{path} is left as it is: {fault}")
        former = work
        if not posix.exchange(work, path):
            if lock is None:
                raise StepError(f"{path.parent} is in use, and two directories cannot change places here; try again later")
            former = _replace(path, manifest.step, work)
        posix.sync_directory(path.parent)
        return former
    finally:
        if lock is not None:
            lock.release()


def taken(run: Path) -> RunLock | None:
    """Take the run's lock, to be released soon; None when the run is in use."""
    try:
        return RunLock.take(run)
    except StepError:
        return None


def is_in_use(run: Path) -> bool:
    """Whether a process has the run's lock."""
    lock = taken(run)
    if lock is not None:
        lock.release()
    return lock is None


def _replace(path: Path, number: int, work: Path) -> Path:
    former = path.with_name(aside_name("was", number, secrets.token_hex(4)))
    posix.rename(path, former)
    try:
        posix.rename(work, path)
    except BaseException:
        posix.rename(former, path)
        raise
    return former
