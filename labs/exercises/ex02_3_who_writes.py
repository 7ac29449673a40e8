"""Who writes what is held twice

Several ranks may hold the same rows. Each row must be written once, and ranks that hold the same rows share the work: they
take these rows in turn, the lowest rank first. `boxes[r]` is `(first row, number of rows)` of rank `r`. Return the rows that
`rank` writes, in rising order.
"""

import random
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from ckptlab.course.exercise import Case

MINUTES = 6
WORLD_SIZES = (1, 2, 4)
HINTS = (
    "Which ranks hold what rank 2 holds in [(0, 4), (4, 4), (0, 4), (4, 4)]? Which of them is rank 2: the first, the second?",
    "`copies = [r for r in range(len(boxes)) if boxes[r] == boxes[rank]]` are the ranks that hold the same rows.",
    "Of n copies, the one at place k takes every n-th row from the k-th on: a slice `[k::n]` of the rows of the box.",
)


def rows_to_write(boxes: list[tuple[int, int]], rank: int) -> list[int]:
    """Return the rows that `rank` writes."""
    raise NotImplementedError


def solution(boxes: list[tuple[int, int]], rank: int) -> list[int]:
    first, num_rows = boxes[rank]
    copies = [other for other, box in enumerate(boxes) if box == boxes[rank]]
    return list(range(first, first + num_rows))[copies.index(rank) :: len(copies)]


def wrong_everyone_writes_all(boxes: list[tuple[int, int]], rank: int) -> list[int]:
    """Every copy is written: with n copies, n times the bytes and n times the time, for the same file."""
    first, num_rows = boxes[rank]
    return list(range(first, first + num_rows))


def wrong_rank_0_writes(boxes: list[tuple[int, int]], rank: int) -> list[int]:
    """Rank 0 can write what it holds, and no more: rows that only other ranks hold are missing in the file."""
    first, num_rows = boxes[0]
    return list(range(first, first + num_rows)) if rank == 0 else []


def wrong_first_copy_writes(boxes: list[tuple[int, int]], rank: int) -> list[int]:
    """Each row is written once, but by the first copy alone; the other copies wait for it. Share the rows."""
    first, num_rows = boxes[rank]
    return list(range(first, first + num_rows)) if boxes.index(boxes[rank]) == rank else []


def wrong_turns_by_rank(boxes: list[tuple[int, int]], rank: int) -> list[int]:
    """The turn is the place among the copies, not the rank: copies on ranks 0 and 2 of two would both take the even rows."""
    first, num_rows = boxes[rank]
    num_copies = boxes.count(boxes[rank])
    return list(range(first, first + num_rows))[rank % num_copies :: num_copies]


def check(answer: Callable[[list[tuple[int, int]], int], list[int]], rank: int, world_size: int) -> Iterator[Case]:
    drawn = random.Random("2.3")
    for copies in [number for number in (1, 2, 4) if world_size % number == 0]:
        for placements in ([Replicate(), Shard(0)], [Shard(0), Replicate()]):
            axis = placements.index(Replicate())  # of the copies
            mesh = init_device_mesh("cpu", (copies, world_size // copies) if axis == 0 else (world_size // copies, copies))
            num_rows = drawn.randint(5, 9)
            own = distribute_tensor(torch.arange(num_rows), mesh, placements).to_local().tolist()
            boxes = _gathered((own[0], len(own)) if own else (0, 0), world_size)
            rows = answer(boxes, rank)
            found = list(rows) if isinstance(rows, range | tuple) else rows
            where = f"boxes {boxes}"
            yield Case(_times_written(found, num_rows), [1] * num_rows, where=f"how often each row is written, {where}")
            yield Case(found, own[mesh.get_local_rank(axis) :: copies], where=f"rows to write, {where}")


def _gathered(box: tuple[int, int], world_size: int) -> list[tuple[int, int]]:
    """Give the boxes of all ranks. Every rank calls it."""
    boxes: list[tuple[int, int]] = [box] * world_size
    dist.all_gather_object(boxes, box)
    return boxes


def _times_written(rows: object, num_rows: int) -> object:
    """Count over all ranks how often each row is written; what is no list of rows is handed back. Every rank calls it."""
    times = torch.zeros(num_rows, dtype=torch.int64)
    for row in rows if isinstance(rows, list) else []:
        if row in range(num_rows):
            times[row] += 1
    dist.all_reduce(times)
    return times.tolist() if isinstance(rows, list) else rows
