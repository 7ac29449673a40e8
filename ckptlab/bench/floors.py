"""What the machine allows: the same bytes by the barest means. Rank side; see `contenders.py` for what a contender is."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ckptlab.bench.stage import Stage, State, as_bytes, locals_of, sync_directory


def write_all(stage: Stage) -> Iterator[None]:
    """Write and fsync model and optimizer, a file a rank."""
    return _write(stage, stage.share(stage.state()))


def write_model(stage: Stage) -> Iterator[None]:
    """The same of the model."""
    return _write(stage, stage.share({"model": stage.state()["model"]}))


def read(stage: Stage) -> Iterator[None]:
    """Read a rank's part of everything straight into its memory."""
    return _read(stage, stage.layout)


def read_resharded(stage: Stage) -> Iterator[None]:
    """The same in the other layout, from files that are cut like that already."""
    return _read(stage, stage.other_layout)


def copy(stage: Stage) -> Iterator[None]:
    """Copy a rank's part of everything into memory that is there; what is on a GPU, into pinned memory."""
    on_device = stage.device == "cuda"
    target = _pinned(stage.state()) if on_device else stage.blank()
    pairs = list(zip(locals_of(target).values(), locals_of(stage.state()).values(), strict=True))
    yield
    for there, here in pairs:
        there.copy_(here, non_blocking=on_device)
    stage.wait_for_device()
    yield
    stage.compare(target)


def _pinned(state: State) -> State:
    """Return page-locked memory for this rank's part of the state."""
    local = {section: locals_of({section: named}) for section, named in state.items()}
    return {
        section: {
            name: torch.empty(local[section][f"{section}/{name}"].shape, dtype=tensor.dtype, pin_memory=True)
            for name, tensor in named.items()
        }
        for section, named in state.items()
    }


def _write(stage: Stage, tensors: dict[str, Tensor]) -> Iterator[None]:
    path, parts = stage.fresh() / f"rank-{stage.rank}", list(as_bytes(tensors))
    yield
    _write_file(path, parts)
    yield


def _read(stage: Stage, layout: str) -> Iterator[None]:
    sharded = any(stage.is_sharded(tensor) for tensor in stage.state(layout)["model"].values())
    owner = stage.rank if sharded else 0  # where all have the same, all read one file
    folder = stage.kept(f"raw-{layout}", lambda path: _write_own(stage, layout, path / f"rank-{stage.rank}", owner))
    target = stage.blank(layout)
    parts = list(as_bytes(locals_of(target)))
    stage.turn_cache(folder)
    yield
    fd = os.open(folder / f"rank-{owner}", os.O_RDONLY)
    begin = 0
    for part in parts:
        begin += _whole(part, lambda rest, at: os.preadv(fd, [rest], at), begin)
    os.close(fd)
    yield
    stage.compare(target, layout)


def _write_own(stage: Stage, layout: str, path: Path, owner: int) -> None:
    if owner == stage.rank:
        _write_file(path, list(as_bytes(locals_of(stage.state(layout)))))
        sync_directory(path.parent)


def _write_file(path: Path, parts: Sequence[memoryview]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    begin = 0
    for part in parts:
        begin += _whole(part, lambda rest, at: os.pwrite(fd, rest, at), begin)
    os.fsync(fd)
    os.close(fd)


def _whole(part: memoryview, move: Callable[[memoryview, int], int], begin: int) -> int:
    """Write or read all of a part at byte `begin` of a file: a system call may take less. Return its bytes."""
    done = 0
    while done < len(part):
        done += (num_bytes := move(part[done:], begin + done))
        if num_bytes == 0:
            raise EOFError(f"the file ends at byte {begin + done}")
    return done
