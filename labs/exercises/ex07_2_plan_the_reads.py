"""Plan the reads

A tensor lies in files, in pieces: `(file, begin, box)` says that the elements of `box` stand in `file` from byte `begin` on,
row after row, `item_bytes` each. A new rank wants the box `wanted`. Return what it must read: `(file, begin, length)` in bytes,
every wanted byte once, no other, in as few reads as possible. `Box`, with `intersect` and `moved`, and `byte_runs` are there.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from ckptlab.course.exercise import Case
from ckptlab.format import Box, byte_runs

MINUTES = 9
WORLD_SIZES = (1, 2, 4)
HINTS = (
    "Piece by piece: `shared = box.intersect(wanted)`, which may be None. Where in the piece does it lie?",
    "`here = shared.moved([-at for at in box.offset])` counts from the piece: `byte_runs(box.shape, here, item_bytes)`.",
    "Each run begins `begin` bytes later in its file. Sort all; one that begins where the last one ends makes that longer.",
)

Piece = tuple[str, int, Box]
Read = tuple[str, int, int]
DIMS = ("rows", "columns")


def plan_reads(pieces: list[Piece], wanted: Box, item_bytes: int) -> list[Read]:
    """Return `(file, begin, length)` of each read."""
    raise NotImplementedError


def solution(pieces: list[Piece], wanted: Box, item_bytes: int) -> list[Read]:
    runs = []
    for file, begin, box in pieces:
        if shared := box.intersect(wanted):
            here = shared.moved([-at for at in box.offset])
            runs += [(file, begin + at, length) for at, length in byte_runs(box.shape, here, item_bytes)]
    reads: list[Read] = []
    for file, begin, length in sorted(runs):
        if reads and reads[-1][0] == file and reads[-1][1] + reads[-1][2] == begin:
            begin, length = reads[-1][1], reads.pop()[2] + length
        reads.append((file, begin, length))
    return reads


def _here(box: Box, wanted: Box) -> Box:
    """Give what a piece shares with what is wanted, counted from the piece's first element; an empty box for nothing."""
    shared = box.intersect(wanted) or Box(box.offset, (0,) * len(box.shape))
    return shared.moved([-at for at in box.offset])


def wrong_whole_pieces(pieces: list[Piece], wanted: Box, item_bytes: int) -> list[Read]:
    """You read whole pieces, also what other ranks want of them. Read only what a piece and `wanted` share."""
    return [(file, begin, box.num_elements * item_bytes) for file, begin, box in pieces if box.intersect(wanted)]


def wrong_counted_in_the_tensor(pieces: list[Piece], wanted: Box, item_bytes: int) -> list[Read]:
    """A place in the tensor is no place in the piece: what they share has to be moved, to count from where the piece begins."""
    shared = [(file, begin, box, box.intersect(wanted)) for file, begin, box in pieces]
    return [
        (file, begin + at, length)
        for file, begin, box, both in shared
        if both
        for at, length in byte_runs(box.shape, both, item_bytes)
    ]


def wrong_from_the_files_begin(pieces: list[Piece], wanted: Box, item_bytes: int) -> list[Read]:
    """Something stands before the piece: runs count from its first byte, which is byte `begin` of the file."""
    return [
        (file, at, length) for file, _, box in pieces for at, length in byte_runs(box.shape, _here(box, wanted), item_bytes)
    ]


def wrong_not_merged(pieces: list[Piece], wanted: Box, item_bytes: int) -> list[Read]:
    """The right bytes. But where a run ends and the next begins at the same place of the same file, one read takes both."""
    return [
        (file, begin + at, length)
        for file, begin, box in pieces
        for at, length in byte_runs(box.shape, _here(box, wanted), item_bytes)
    ]


def check(answer: Callable[[list[Piece], Box, int], list[Read]], rank: int, world_size: int) -> Iterator[Case]:
    mesh = init_device_mesh("cpu", (world_size,))
    drawn = random.Random("7.2")
    for old_dim, new_dim, num_files in ((0, 0, 1), (0, 1, 4), (1, 0, 4), (1, 1, 1), (0, 1, 1), (0, 0, 4)):
        dtype = drawn.choice((torch.uint8, torch.int32, torch.int64))
        shape = (drawn.choice((5, 8, 9)), drawn.choice((5, 6, 8)))
        numbers = torch.arange(shape[0] * shape[1], dtype=dtype).view(shape)
        own = distribute_tensor(numbers, mesh, [Shard(new_dim)]).to_local()
        where = f"reads of {DIMS[new_dim]} from pieces of {DIMS[old_dim]}, shape {shape}, files: {num_files}"
        with TemporaryDirectory() as folder:
            pieces = _write(Path(folder), numbers.chunk(4, old_dim), shape, num_files, drawn)
            found = answer(pieces, _box(own, shape), dtype.itemsize)
            values = _read_all(Path(folder), found, dtype)
            fewest = sum(_num_runs(path, own, dtype) for path in Path(folder).iterdir())
        cost = len(found) if isinstance(found, list) else None
        yield Case(values, sorted(own.flatten().tolist()), where=where, cost=cost, budget=fewest)


def _box(part: torch.Tensor, shape: tuple[int, int]) -> Box:
    """Tell where a part of numbers begins: its first number says it; a part without any begins at the end."""
    at = divmod(int(part.flatten()[0]), shape[1]) if part.numel() else shape
    return Box(at, (part.shape[0], part.shape[1]))


def _write(
    folder: Path, parts: tuple[torch.Tensor, ...], shape: tuple[int, int], num_files: int, drawn: random.Random
) -> list[Piece]:
    """Write the parts, one after the other in one file or each into its own, behind a head of ones; give the pieces."""
    pieces = []
    for number, part in enumerate(parts):
        path = folder / f"file-{number % num_files}"
        if not path.exists():
            path.write_bytes(b"\xff" * part.dtype.itemsize * drawn.randint(2, 9))
        pieces.append((path.name, path.stat().st_size, _box(part, shape)))
        with path.open("ab") as file:
            file.write(part.contiguous().numpy().tobytes())
    return pieces


def _read_all(folder: Path, found: object, dtype: torch.dtype) -> object:
    """Do the planned reads and give the numbers, sorted; what is no plan, or reads beyond a file, is given as it is."""
    data = bytearray()
    try:
        for name, begin, length in found:  # type: ignore[attr-defined]  # what is no list of these raises
            part = (folder / name).read_bytes()[begin : begin + length]
            if begin < 0 or len(part) != length or length % dtype.itemsize:
                return found
            data += part
    except (TypeError, ValueError, OSError):
        return found
    return sorted(torch.frombuffer(data, dtype=dtype).tolist()) if data else []


def _num_runs(path: Path, own: torch.Tensor, dtype: torch.dtype) -> int:
    """Count the runs of a file in which wanted numbers stand side by side."""
    wanted = torch.isin(torch.frombuffer(bytearray(path.read_bytes()), dtype=dtype), own).int()
    return int((torch.diff(wanted, prepend=torch.zeros(1, dtype=torch.int32)) == 1).sum())
