"""Go back to an earlier step: the later ones are set aside, so that the next resume takes it."""

from pathlib import Path

from ckptlab.errors import StepError
from ckptlab.format.names import step_name
from ckptlab.steps.housekeeping import mark_rollback, set_aside
from ckptlab.steps.steps import find_step, list_steps
from ckptlab.storage import RunLock


def rollback(run: Path, number: int) -> dict[int, Path]:
    """Make a whole step the newest of a run that nobody trains; return where each later step went, newest first.

    Nothing is deleted: to undo it, rename the directories back. The next resume takes no later step from a tier either, and
    deletes those on the nodes.

    Raises:
        StepError: the step is not there or not whole, or the run is in use.
    """
    target = find_step(run / step_name(number))
    if not target.whole:
        raise StepError(f"{target.path} is not whole ({target.fault}); roll back to a whole step")
    lock = RunLock.take(run)
    try:
        mark_rollback(run, number)
        later = [step for step in list_steps(run) if step.number > number]
        return {step.number: set_aside(step.path, "bad", rolled_back_to=number) for step in reversed(later)}
    finally:
        lock.release()
