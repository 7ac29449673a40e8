"""ckptlab's own contenders. Rank side; see `contenders.py` for what a contender is."""

from collections.abc import Iterator
from pathlib import Path

from ckptlab.bench.stage import Stage, State
from ckptlab.checkpoint import Contents, load, save
from ckptlab.checkpoint.collectives import Group, Outcome
from ckptlab.checkpoint.plan import Files
from ckptlab.format.names import step_name
from ckptlab.resume.background import BackgroundSaver

STEP = 1


def save_all(stage: Stage) -> Iterator[None]:
    """Save model and optimizer."""
    return _save(stage, stage.state())


def save_by_rank(stage: Stage) -> Iterator[None]:
    """Save both, a file a rank: where ranks hold short runs of rows, none then waits for another's page."""
    return _save(stage, stage.state(), "by_rank")


def save_model(stage: Stage) -> Iterator[None]:
    """Save the model alone: the files of `model/` are what Hugging Face opens."""
    return _save(stage, {"model": stage.state()["model"]})


def save_behind(stage: Stage) -> Iterator[None]:
    """Copy, agree and begin to save, as `Checkpointer(background=...)` keeps the caller in all saves but the first."""
    run, contents, saver = stage.fresh(), contents_of(stage.state()), BackgroundSaver()
    saver.copy(contents)
    with Group.lent(None) as group:
        yield
        copy = saver.copy(contents)
        group.agree(Outcome())
        saver.start(STEP, lambda ranks: save(run, STEP, copy, group=ranks))
        yield
        saver.finish(group)
    saver.close()


def load_checked_first(stage: Stage) -> Iterator[None]:
    """Load as `ckptlab.checkpoint.load` does unless told otherwise."""
    return _load(stage, stage.layout, verify_first=True)


def load_once(stage: Stage) -> Iterator[None]:
    """Load as `Checkpointer.resume` does."""
    return _load(stage, stage.layout, verify_first=False)


def reshard_checked_first(stage: Stage) -> Iterator[None]:
    """The same into the other layout."""
    return _load(stage, stage.other_layout, verify_first=True)


def reshard_once(stage: Stage) -> Iterator[None]:
    """The same into the other layout."""
    return _load(stage, stage.other_layout, verify_first=False)


def _save(stage: Stage, state: State, files: Files = "by_tensor") -> Iterator[None]:
    run, contents = stage.fresh(), contents_of(state)
    with Group.lent(None) as group:  # a run has one from its first save on
        yield
        save(run, STEP, contents, files=files, group=group)
        yield


def _load(stage: Stage, layout: str, *, verify_first: bool) -> Iterator[None]:
    run = stage.kept("ckptlab", lambda path: _save_there(path, stage))
    target = stage.blank(layout)
    contents = contents_of(target)
    stage.turn_cache(run)
    with Group.lent(None) as group:
        yield
        load(run / step_name(STEP), lambda manifest, state: contents, verify_first=verify_first, group=group)
        yield
    stage.compare(target, layout)


def _save_there(path: Path, stage: Stage) -> None:
    save(path, STEP, contents_of(stage.state()))


def contents_of(state: State) -> Contents:
    """Return the state as what a save takes."""
    return Contents(model=state["model"], optim=state.get("optim", {}))
