"""Go back to an earlier step: the later ones are set aside, so that the next resume takes it."""

from pathlib import Path

from ckptlab.errors import StepError
from ckptlab.format.names import step_name
from ckptlab.steps.housekeeping import set_aside
from ckptlab.steps.steps import find_step, list_steps
from ckptlab.storage import RunLock


def rollback(run: Path, number: int) -> dict[int, Path]:
    """Make a whole step the newest of a run that nobody trains; return where each later step went, newest first.

    Nothing is deleted: to undo it, rename the directories back. Of later steps in a store the next resume takes none.

    Raises:
        StepError: the step is not there or not whole, or the run is in use.
    """
    target = find_step(run / step_name(number))
    if not target.whole:
        raise StepError(f"{target.path} is not whole ({target.fault}); roll back to a whole step")
    lock = RunLock.take(run)
    try:
        later = [step for step in list_steps(run) if step.number > number]
        return {step.number: set_aside(step.path, "bad", rolled_back_to=number) for step in reversed(later)}
    finally:
        lock.release()
