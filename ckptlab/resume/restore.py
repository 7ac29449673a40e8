"""Take the newest whole step as the state of a run: choose, load, accept, set aside what came later.

A step may stand in several sources: tiers of every node, the run's directory, stores. The coordinator chooses one, all ranks
load the step from there, and all go on from it or none does. One that turns out to be damaged is passed over for the same step
farther away, then for the one before.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ckptlab.checkpoint.collectives import Group, Outcome, RanksDisagree, attempt
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.load import Loaded, State, load
from ckptlab.errors import CorruptError, LoadError, ResumeError
from ckptlab.format.manifest import Manifest
from ckptlab.resume.choice import Candidate, Choice, Source
from ckptlab.resume.train_state import TrainState
from ckptlab.steps.housekeeping import unmark_rollback

logger = logging.getLogger("ckptlab")


class Restored(NamedTuple):
    """The step that a run goes on from, 0 for none; and the later ones that there are somewhere (coordinator)."""

    step: int
    later: list[int]


def restore(
    run: Path,
    sources: Sequence[Source],
    state: TrainState,
    group: Group,
    write_event: Callable[[Mapping[str, object]], None],
    allow_inexact: bool = False,
) -> Restored:
    """Load the newest whole step of the run in the directory `run` into `state`. Every rank calls it.

    Args:
        run: the run's directory.
        sources: where its steps may stand, nearest first; the run's directory is one of them.
        state: what is filled.
        group: the ranks.
        write_event: called on the coordinator.
        allow_inexact: take a step that was made small with loss too.

    Raises what `Checkpointer.resume` does.
    """
    wanted = state.wanted if allow_inexact else partial(_wanted_exactly, state)
    choice = Choice(run, sources, [_listed(source, group) for source in sources])
    changed = False
    while True:
        chosen = _choose(choice, group, changed)
        if chosen is None:
            return Restored(0, [])
        source = sources[chosen.source]
        try:
            place = source.prepare(chosen.number, state.wanted, group)
            loaded = load(place, wanted, verify_first=False, need_whole=source.need_whole, group=group)
        except CorruptError as error:
            choice.refused[chosen], changed = str(error), changed or error.state_changed
            continue
        except LoadError as error:
            error.state_changed = error.state_changed or changed
            raise
        _take(run, sources, state, loaded, group)
        if group.is_coordinator:
            event = _load_event(loaded, choice.refusals(), group.world_size)
            write_event(event if str(source) == str(run) else {**event, "tier": str(source)})
            if str(source) != str(run):
                logger.warning("%s: resumed from step %d in %s", run, chosen.number, source)
            _tell(run, state, loaded, choice)
        return Restored(chosen.number, choice.later(chosen.number))


def _wanted_exactly(state: TrainState, manifest: Manifest, saved: State) -> Contents:
    if manifest.inexact:
        raise ResumeError(
            f"step {manifest.step} is inexact: {len(manifest.inexact)} tensors are int8 now, {manifest.inexact[0]!r} "
            f"among them; allow_inexact=True goes on from it, and `ckptlab rollback` back to an exact step"
        )
    return state.wanted(manifest, saved)


def _listed(source: Source, group: Group) -> Outcome:
    """Return the steps of a source. A store that does not answer is passed; what all ranks list together has to be known."""
    try:
        return attempt(partial(source.numbers, group)) if source.need_whole else Outcome(source.numbers(group))
    except LoadError as error:
        raise ResumeError(f"{error}; start again when they are") from error


def _choose(choice: Choice, group: Group, changed: bool) -> Candidate | None:
    """Return the newest whole step that was not refused, on every rank; None for a run without any step."""
    try:
        chosen: list[int] | None = group.from_coordinator(choice.next)
    except RanksDisagree as error:
        raise ResumeError(str(error), state_changed=changed) from error
    return None if chosen is None else Candidate(*chosen)


def _take(run: Path, sources: Sequence[Source], state: TrainState, loaded: Loaded, group: Group) -> None:
    """Make the loaded step the state of the run, on all ranks or none of them goes on."""
    step = loaded.manifest.step
    try:
        group.agree(attempt(lambda: state.accept(loaded)))
        for source in sources:
            source.leave(step, group)
        group.from_coordinator(lambda: unmark_rollback(run))
    except (RanksDisagree, LoadError) as error:
        raise ResumeError(f"step {step} of {run} was loaded but not taken: {error}", state_changed=True) from error


def _load_event(loaded: Loaded, refused: Sequence[tuple[int, str]], world_size: int) -> dict[str, object]:
    return {
        "event": "load",
        "step": loaded.manifest.step,
        "outcome": "loaded",
        "ranks": world_size,
        "bytes": sum(record.num_bytes for record in loaded.manifest.files.values()),
        "refused": [{"step": number, "why": why} for number, why in refused],
    }


def _tell(run: Path, state: TrainState, loaded: Loaded, choice: Choice) -> None:
    for number, why in choice.refusals():
        logger.warning("%s: step %d was passed over: %s", run, number, why)
    for error in choice.silent:
        logger.warning("%s: resumed from step %d; is there a newer one? %s", run, loaded.manifest.step, error)
    for sentence in state.promises_lost(loaded):
        logger.warning("%s: resumed from step %d: %s", run, loaded.manifest.step, sentence)
