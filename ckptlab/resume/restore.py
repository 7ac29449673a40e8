"""Take the newest whole step as the state of a run: choose, load, accept, set aside what came later.

The coordinator chooses, all ranks load, and all go on from the step or none does. A step that turns out to be damaged is passed
over for the one before.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from ckptlab.checkpoint.collectives import Group, RanksDisagree, attempt
from ckptlab.checkpoint.load import Loaded, load
from ckptlab.errors import CorruptError, LoadError, ResumeError
from ckptlab.format.names import step_name
from ckptlab.resume.train_state import TrainState
from ckptlab.steps.housekeeping import set_aside
from ckptlab.steps.steps import list_steps

logger = logging.getLogger("ckptlab")


def restore(run: Path, state: TrainState, group: Group, write_event: Callable[[Mapping[str, object]], None]) -> int:
    """Load the newest whole step of `run` into `state` and return its number; 0 where there is no step. Every rank calls it.

    Raises what `Checkpointer.resume` does.
    """
    refused: dict[int, str] = {}
    changed = False
    while True:
        step = _choose(run, group, refused, changed)
        if step is None:
            return 0
        try:
            loaded = load(run / step_name(step), state.wanted, verify_first=False, group=group)
        except CorruptError as error:
            refused[step], changed = str(error), changed or error.state_changed
            continue
        except LoadError as error:
            error.state_changed = error.state_changed or changed
            raise
        _take(run, state, loaded, group)
        if group.is_coordinator:
            write_event(_load_event(loaded, refused, group.world_size))
            _tell(run, state, loaded, refused)
        return step


def _choose(run: Path, group: Group, refused: dict[int, str], changed: bool) -> int | None:
    """Return the newest whole step that was not refused, on every rank; None for a run without any step."""
    try:
        step: int | None = group.from_coordinator(lambda: _newest(run, refused))
    except RanksDisagree as error:
        raise ResumeError(str(error), state_changed=changed) from error
    return step


def _newest(run: Path, refused: dict[int, str]) -> int | None:
    steps = list_steps(run)
    refused.update({step.number: step.fault for step in steps if step.fault is not None})
    whole = [step.number for step in steps if step.number not in refused]
    if steps and not whole:
        reasons = "; ".join(f"step {number}: {why}" for number, why in sorted(refused.items(), reverse=True)[:3])
        raise ResumeError(f"no step of {run} can be loaded ({reasons}); move the directory away to start afresh")
    return max(whole, default=None)


def _take(run: Path, state: TrainState, loaded: Loaded, group: Group) -> None:
    """Make the loaded step the state of the run, on all ranks or none of them goes on."""
    step = loaded.manifest.step
    try:
        group.agree(attempt(lambda: state.accept(loaded)))
        group.from_coordinator(lambda: _set_later_aside(run, step))
    except RanksDisagree as error:
        raise ResumeError(f"step {step} of {run} was loaded but not taken: {error}", state_changed=True) from error


def _set_later_aside(run: Path, step: int) -> None:
    for later in list_steps(run):
        if later.number > step:
            logger.warning("%s is set aside as %s", later.path, set_aside(later.path, "bad").name)


def _load_event(loaded: Loaded, refused: Mapping[int, str], world_size: int) -> dict[str, object]:
    return {
        "event": "load",
        "step": loaded.manifest.step,
        "outcome": "loaded",
        "ranks": world_size,
        "bytes": sum(record.num_bytes for record in loaded.manifest.files.values()),
        "refused": [{"step": number, "why": why} for number, why in sorted(refused.items())],
    }


def _tell(run: Path, state: TrainState, loaded: Loaded, refused: Mapping[int, str]) -> None:
    for number, why in sorted(refused.items()):
        logger.warning("%s: step %d was passed over: %s", run, number, why)
    for sentence in state.promises_lost(loaded):
        logger.warning("%s: resumed from step %d: %s", run, loaded.manifest.step, sentence)
