"""What the contenders of one rank share: the state, memory to load into, folders, the page cache. Rank side."""

import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor

from ckptlab.bench.shapes import transformer, with_moments

State = dict[str, dict[str, Tensor]]
"""Section (`model`, `optim`) to name to tensor; what is not sharded is a plain tensor, of which every rank has a copy."""

NOWHERE = -1.0  # a value that no tensor of the state has
READ_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Page:
    """Whether files are read from the disk (`cold`) or from memory: the same for all contenders."""

    cold: bool

    def turn(self, path: Path) -> None:
        """Put a file out of the page cache, or into it."""
        fd = os.open(path, os.O_RDONLY)
        try:
            if self.cold:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            while not self.cold and os.read(fd, READ_BYTES):
                pass
        finally:
            os.close(fd)


class Stage:
    """Made on every rank; `num_bytes` is of the state over all ranks, replicas counted once."""

    def __init__(self, layout: str, other_layout: str, num_bytes: int, folder: Path, *, cold: bool, device: str) -> None:
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.layout, self.other_layout, self.device = layout, other_layout, device
        self.faults: list[str] = []
        self._folder, self._page = folder, Page(cold)
        self._shapes = with_moments(transformer(num_bytes))
        self._mesh = init_device_mesh(device, (self.world_size,), mesh_dim_names=("ranks",))
        self._states: dict[str, State] = {}
        self._blanks: dict[str, State] = {}
        self._fresh: list[Path] = []

    def state(self, layout: str | None = None) -> State:
        """Return the state, cut as this layout is; made once."""
        layout = layout or self.layout
        if layout not in self._states:
            self._states[layout] = self._made(layout)
        return self._states[layout]

    def blank(self, layout: str | None = None) -> State:
        """Return memory for the state in which no value is right yet; the same memory each time."""
        layout = layout or self.layout
        if layout not in self._blanks:
            self._blanks[layout] = self._made(layout)
        for tensor in locals_of(self._blanks[layout]).values():
            tensor.fill_(NOWHERE)
        return self._blanks[layout]

    def forget(self) -> None:
        """Give back the memory that was made for loading, and for the other layout."""
        self._blanks.clear()
        self._states.pop(self.other_layout, None)

    def fresh(self) -> Path:
        """Return an empty folder that all ranks see, removed by `clean`. Every rank calls it."""
        path = self._folder / f"fresh-{len(self._fresh)}"
        self._make(path)
        self._fresh.append(path)
        return path

    def kept(self, name: str, save: Callable[[Path], object]) -> Path:
        """Return the folder of this name, into which `save` has saved, once in this run. Every rank calls it."""
        path = self._folder / f"kept-{name}"
        there = path.exists()
        self.barrier()  # or a slow rank would see what a fast one makes
        if not there:
            self._make(path)
            save(path)
            self.barrier()
        return path

    def turn_cache(self, folder: Path) -> None:
        """Put all files below a folder out of the page cache, or into it, as this run has it. Every rank calls it."""
        if self.rank == 0:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    self._page.turn(path)
        self.barrier()

    def compare(self, found: State, layout: str | None = None) -> None:
        """Take down a fault where what was loaded is not, bit for bit, the state."""
        expected = locals_of({section: self.state(layout)[section] for section in found})
        loaded = locals_of(found)
        wrong = sorted(n for n in expected.keys() | loaded.keys() if n not in loaded or not _same(expected[n], loaded[n]))
        if wrong:
            self.faults.append(f"rank {self.rank}: {wrong[0]} and {len(wrong) - 1} others are not what was saved, bit for bit")

    def is_sharded(self, tensor: Tensor) -> bool:
        """Whether this rank has a part of the tensor of its own."""
        return isinstance(tensor, DTensor)

    def share(self, state: State) -> dict[str, Tensor]:
        """Return what this rank writes where each writes a file of its own: its parts, and of replicas as much as others."""
        flat = {f"{section}/{name}": tensor for section, named in state.items() for name, tensor in named.items()}
        local, taken = locals_of(state), [0] * self.world_size
        own = {name: local[name] for name, tensor in flat.items() if self.is_sharded(tensor)}
        for name in sorted(local.keys() - own.keys(), key=lambda name: (-local[name].nbytes, name)):
            rank = taken.index(min(taken))
            taken[rank] += local[name].nbytes
            if rank == self.rank:
                own[name] = local[name]
        return own

    def clean(self) -> None:
        """Remove the fresh folders, and wait until the file system has done so. Every rank calls it."""
        self.barrier()
        if self.rank == 0:
            for path in self._fresh:
                shutil.rmtree(path)
            sync_directory(self._folder)
        self._fresh.clear()
        self.barrier()

    def wait_for_device(self) -> None:
        """Wait until a GPU has done what it was given."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier()

    def _make(self, path: Path) -> None:
        if self.rank == 0:
            path.mkdir()
        self.barrier()

    def _made(self, layout: str) -> State:
        return {
            section: {name: self._cut(layout, values(name, shape).to(self.device)) for name, shape in shapes.items()}
            for section, shapes in self._shapes.items()
        }

    def _cut(self, layout: str, full: Tensor) -> Tensor:
        placement: Placement = {"rows": Shard(0), "columns": Shard(1)}.get(layout, Replicate())
        if isinstance(placement, Replicate) or placement.dim >= full.ndim:  # type: ignore[attr-defined]  # Shard has it
            return full
        cut = distribute_tensor(full, self._mesh, [placement], src_data_rank=None)
        own = cut.to_local().clone()  # or it would keep all of `full`
        return DTensor.from_local(own, self._mesh, [placement], run_check=False, shape=full.shape, stride=full.stride())


def values(name: str, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of the state: alike on all ranks, other values at other places and in other tensors, none negative."""
    full = torch.arange(torch.Size(shape).numel()).add_(zlib.crc32(name.encode())).mul_(2654435761).bitwise_and_(0xFFFFFF)
    return full.float().reshape(shape)


def locals_of(state: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return this rank's part of each tensor, by section and name in one word."""
    flat = {f"{section}/{name}": tensor for section, named in state.items() for name, tensor in named.items()}
    return {name: tensor.to_local() if isinstance(tensor, DTensor) else tensor for name, tensor in flat.items()}


def as_bytes(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """Yield the memory of each tensor."""
    for tensor in tensors.values():
        yield tensor.reshape(-1).view(torch.uint8).numpy().data


def sync_directory(path: Path) -> None:
    """Return when the names in a directory are on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.reshape(-1).view(torch.uint8).cpu(), b.reshape(-1).view(torch.uint8).cpu())
