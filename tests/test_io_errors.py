"""What one rank's kernel refuses: no save is half, no load changes anything, and every rank tells the same cause."""

import os
import re
import shutil
from collections.abc import Iterator
from errno import EACCES, EINVAL, EIO, ENOLCK, ENOSPC, EOPNOTSUPP
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from kernel_says_no import Refusal, in_a_thread, refuse

from ckptlab.checkpoint import Contents, load, save
from ckptlab.errors import LoadError, SaveError, StepError, WorldError
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState
from ckptlab.steps import list_steps, verify

NO_FOLDER = Refusal("mkdir", EACCES)
NO_FILE = Refusal("openat", EACCES, flags=os.O_CREAT)
NO_SPACE = Refusal("fallocate", ENOSPC)
FULL = Refusal("pwrite", ENOSPC)
FULL_LATER = Refusal("pwrite", ENOSPC, offset=1 << 20)  # in the middle of the shared file
NOT_SYNCED = Refusal("fsync", EIO)
NOT_CLOSED = Refusal("close", EIO)
NOT_RENAMED = Refusal("rename", EIO)
NOT_REMOVED = Refusal("unlink", EACCES)
NOT_SEEN = Refusal("stat", EIO)
SHARED, INDEX = "/model/model-00001-of-00001.safetensors", "/model/model.safetensors.index.json"
OWN = "/ranks/rank-00001.safetensors"

On = tuple[str, int, Refusal]  # after this phase, on this rank


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    with World(2) as world:
        yield world


@pytest.fixture(scope="module")
def saved(shared_world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with step 5."""
    run = tmp_path_factory.mktemp("saved")
    assert shared_world.run(save_refused, run, 5) == [{}] * 2
    return run


@pytest.fixture
def world(shared_world: World) -> World:
    """The same two processes for every test: they outlive their errors."""
    try:
        shared_world.run("dist.barrier()")
    except WorldError:
        shared_world.restart()
    return shared_world


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    """A run with step 5, of this test alone."""
    return shutil.copytree(saved, tmp_path / "run")


def contents(seed: int) -> Contents:
    """A tensor of which two ranks write blocks in turn, and files of each rank's own."""
    return Contents(
        model={"weight": torch.full((2 << 20,), float(seed))},
        rank_tensors={"rng": torch.full((5,), seed * (1 + dist.get_rank()))},
        rank_state={"seed": seed},
    )


def save_refused(run: Path, step: int, *on: On) -> dict[str, object]:
    """Save a step and keep it alone; what is refused when, and what it came to."""

    def on_phase(done: str) -> None:
        refuse(*(refusal for phase, rank, refusal in on if (phase, rank) == (done, dist.get_rank())))

    try:
        in_a_thread(lambda: save(run, step, contents(step), keep_last=1, on_phase=on_phase))
    except SaveError as error:
        return {"message": str(error), "committed": error.committed, "lost": error.lost}
    return {}


def what_is_in(run: Path) -> list[str]:
    """All that stands in a run, without the parts of names that are drawn; every step of it is whole and as it was written."""
    assert [fault for step in list_steps(run) for fault in verify(step)] == []
    return sorted(re.sub(r"-\w{8}$", "-x", path.name) if path.name.startswith(".") else path.name for path in run.iterdir())


def expected(rank: int, number: int, path: str) -> str:
    """What every rank tells of an error on one of them."""
    return rf"step 6 .* in .*: rank {rank}: \w+: \[Errno {number}\] {os.strerror(number)}: '{path}'"


@pytest.mark.parametrize(
    ("victim", "refused", "number", "file"),
    [
        (0, {"plan": [NO_FOLDER]}, EACCES, ""),
        (0, {"plan": [NO_FILE]}, EACCES, SHARED),
        (0, {"plan": [NO_SPACE]}, ENOSPC, SHARED),
        (0, {"plan": [NO_SPACE, NOT_REMOVED]}, ENOSPC, SHARED),
        (0, {"reserve": [NO_FILE]}, EACCES, INDEX),
        (1, {"reserve": [NO_FILE]}, EACCES, OWN),
        (0, {"reserve": [NO_SPACE]}, ENOSPC, INDEX),
        (1, {"reserve": [NO_SPACE]}, ENOSPC, OWN),
        (0, {"reserve": [FULL_LATER]}, ENOSPC, SHARED),
        (1, {"reserve": [FULL_LATER]}, ENOSPC, SHARED),
        (0, {"reserve": [FULL, NOT_REMOVED]}, ENOSPC, SHARED),
        (0, {"write": [NOT_SYNCED]}, EIO, SHARED),
        (1, {"write": [NOT_SYNCED]}, EIO, OWN),
        (1, {"write": [NOT_CLOSED]}, EIO, "/.+"),
        (1, {"reserve": [FULL], "write": [NOT_CLOSED]}, ENOSPC, OWN),
        (0, {"agree": [NO_FILE]}, EACCES, "/manifest.json"),
        (0, {"agree": [FULL]}, ENOSPC, "/manifest.json"),
        (0, {"agree": [NOT_SYNCED]}, EIO, "/manifest.json"),
        (0, {"manifest": [NOT_RENAMED]}, EIO, ""),
    ],
    ids=lambda value: " ".join(f"{on} {each.call}" for on in value for each in value[on]) if isinstance(value, dict) else None,
)
def test_a_call_that_fails_on_one_rank_is_every_ranks_save_error_and_the_same_ranks_can_save_again(
    victim: int,
    refused: dict[str, list[Refusal]],
    number: int,
    file: str,
    world: World,
    run: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = world.run(save_refused, run, 6, *((phase, victim, each) for phase, refusals in refused.items() for each in refusals))
    assert told[0] == told[1]
    assert (told[0].get("committed"), told[0].get("lost")) == (False, ()), told
    assert re.match(expected(victim, number, rf"{run}/\.tmp-step-00000006-\w+{file}"), told[0]["message"]), told
    left = [".tmp-step-00000006-x"] if NOT_REMOVED in next(iter(refused.values())) else []
    assert what_is_in(run) == [*left, "events.jsonl", "step-00000005"]
    assert ("was not removed" in capsys.readouterr().out) == bool(left)
    assert world.run(save_refused, run, 6) == [{}] * 2
    assert what_is_in(run) == [*left, "events.jsonl", "step-00000006"]


@pytest.mark.parametrize("others", [(), (("manifest", 1, NOT_SEEN),)], ids=["seen", "not seen"])
def test_no_rank_says_that_a_step_is_not_saved_when_only_its_name_may_not_be_durable(
    others: tuple[On, ...], world: World, run: Path
) -> None:
    told = world.run(save_refused, run, 6, ("manifest", 0, NOT_SYNCED), *others)
    assert [answer["committed"] for answer in told] == [None] * 2, told
    assert all(re.match(expected(0, EIO, str(run)), answer["message"]) for answer in told), told
    assert what_is_in(run) == ["events.jsonl", "step-00000005", "step-00000006"]


@pytest.mark.parametrize(
    ("phase", "refusal", "found", "told"),
    [
        ("commit", NOT_REMOVED, [".trash-step-00000005-x", "events.jsonl", "step-00000006"], "old steps were not deleted"),
        ("commit", NOT_RENAMED, ["events.jsonl", "step-00000005", "step-00000006"], "old steps were not deleted"),
        ("plan", Refusal("fallocate", EOPNOTSUPP), ["events.jsonl", "step-00000006"], ""),  # as NFS has it
        ("plan", Refusal("fallocate", EINVAL), ["events.jsonl", "step-00000006"], ""),
    ],
)
def test_a_save_does_without_what_it_can_do_without(
    phase: str, refusal: Refusal, found: list[str], told: str, world: World, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.run(save_refused, run, 6, (phase, 0, refusal)) == [{}] * 2
    assert what_is_in(run) == found
    assert told in capsys.readouterr().out


def test_a_run_that_cannot_be_made_is_named(world: World, tmp_path: Path) -> None:
    told = world.run(save_refused, tmp_path / "new", 6, ("plan", 0, NO_FOLDER))
    assert told[0] == told[1]
    assert re.match(expected(0, EACCES, f"{tmp_path}/new"), told[0]["message"]), told


def load_refused(step: Path, victim: int, refusal: Refusal, verify_first: bool) -> dict[str, object]:
    """Load a step into zeros, and tell what it came to."""
    empty = contents(0)

    def work() -> None:
        if dist.get_rank() == victim:
            refuse(refusal)
        load(step, lambda manifest, state: empty, verify_first=verify_first)

    try:
        in_a_thread(work)
    except LoadError as error:
        told = {"kind": type(error).__name__, "message": str(error), "changed": error.state_changed}
        return told | {"zero": not any(tensor.any() for tensor in (*empty.model.values(), *empty.rank_tensors.values()))}
    return {}


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(
    ("offset", "verify_first", "kind", "words"),
    [
        (0, True, "LoadError", "the step is not whole: .*manifest.json"),
        (5 << 20, True, "CorruptError", r"bytes 8388608-8392704: cannot be read: .*; tensors in it: weight"),
        (5 << 20, False, "CorruptError", r"bytes 8388608-8392704: cannot be read: .*; tensors in it: weight"),
    ],
)
def test_a_disk_that_does_not_give_back_what_one_rank_reads_is_every_ranks_load_error(
    victim: int, offset: int, verify_first: bool, kind: str, words: str, world: World, saved: Path
) -> None:
    refusal = Refusal("pread", EIO, offset=offset)
    told = world.run(load_refused, saved / "step-00000005", victim, refusal, verify_first)
    assert told[0] == told[1]
    assert told[0]["kind"] == kind
    assert re.search(rf"rank {victim}: .*{words}", told[0]["message"]), told
    assert (told[0]["changed"], told[0]["zero"]) == (not verify_first, verify_first)


def resume_refused(run: Path, state: TrainState, *refusals: Refusal) -> int:
    refuse(*refusals)
    with Checkpointer(run) as checkpointer:
        return checkpointer.resume(state)


def test_a_run_on_a_full_disk_is_resumed_and_one_that_cannot_be_locked_is_told_where(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()))
    state.step = 1
    save(tmp_path, 1, state.contents())
    assert in_a_thread(resume_refused, tmp_path, state, FULL, NO_SPACE) == 1
    with pytest.raises(StepError, match=rf"\[Errno {ENOLCK}\] {os.strerror(ENOLCK)}: '{tmp_path}/.lock'"):
        in_a_thread(resume_refused, tmp_path, state, Refusal("fcntl", ENOLCK))  # as NFS without its lock service has it
