"""The end of a run that a signal stops, on every rank: one more save, word of it on disk, and `Preempted`."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ckptlab.checkpoint.collectives import Group, RanksDisagree, attempt_or_warn, leave_world_at_exit
from ckptlab.errors import Preempted, SaveError
from ckptlab.format.names import step_name
from ckptlab.resume.preemption import AGENT, Signal
from ckptlab.steps.events import WriteEvent
from ckptlab.steps.preempted import write_mark
from ckptlab.steps.steps import read_step

logger = logging.getLogger("ckptlab")


def stop(
    run: Path,
    step: int,
    why: Signal,
    group: Group,
    *,
    wait: Callable[[], object],
    save: Callable[[], object],
    close: Callable[[], None],
    write_event: WriteEvent,
) -> NoReturn:
    """Save the step, unless that is done, say on disk why the run has stopped, close, and raise `Preempted`.

    Args:
        run: the run's directory.
        step: the last one that was trained.
        why: what the ranks have agreed on.
        group: of the main threads.
        wait: waits for the save in flight.
        save: saves the step.
        close: closes the checkpointer.
        write_event: called on the coordinator.

    Raises:
        SaveError: the step could not be saved.
    """
    try:
        _wait_or_warn(wait)
        if not group.from_coordinator(lambda: _is_saved(run, step)):
            save()
            wait()
        group.from_coordinator(lambda: _leave_word(run, step, why, write_event))
    except RanksDisagree as error:
        raise SaveError(f"step {step} may or may not be saved in {run}: {error}", committed=None, lost=error.lost) from error
    close()
    leave_world_at_exit()
    raise Preempted(step, 0 if AGENT in os.environ else Preempted.CODE)  # the agent would start a failed rank again


def _wait_or_warn(wait: Callable[[], object]) -> None:
    """Wait for the save in flight; that it failed is one reason more to save again, unless a rank is lost."""
    try:
        wait()
    except SaveError as error:
        if error.lost:
            raise
        logger.warning("%s", error)


def _is_saved(run: Path, step: int) -> bool:
    return read_step(run / step_name(step)).whole


def _leave_word(run: Path, step: int, why: Signal, write_event: WriteEvent) -> None:
    saved = _is_saved(run, step)
    told = {"step": step, "signal": why.name, "rank": why.rank, "outcome": "committed" if saved else "failed"}
    write_event({"event": "preempted", **told})
    attempt_or_warn(f"{run} is not marked as preempted", lambda: write_mark(run, step if saved else None, why.name, why.rank))
    what = "is saved; the same command goes on from it" if saved else "is not saved; the newest whole step is untouched"
    logger.warning("rank %d got %s, and all ranks stop: step %d %s", why.rank, why.name, step, what)
