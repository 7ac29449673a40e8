"""The rows of a rank

`Shard(0)` deals the rows of a tensor out to the ranks of a mesh axis, in order. Return the first row that `rank`
owns and how many rows it owns. A rank that owns nothing returns `(0, 0)`.
"""

from collections.abc import Callable, Iterator

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from ckptlab.course.exercise import Case

MINUTES = 6
WORLD_SIZES = (1, 2, 3, 4)
HINTS = (
    "Print `torch.arange(7).chunk(4)`. How many pieces are there, and how long is each?",
    "All pieces but the last ones are equally long: `ceil(num_rows / world_size)`.",
    "`first = min(rank * longest, num_rows)`; the next rank's first row tells where yours ends.",
)


def rows_of_rank(num_rows: int, world_size: int, rank: int) -> tuple[int, int]:
    """Return `(first row, number of rows)` of `rank`."""
    raise NotImplementedError


def solution(num_rows: int, world_size: int, rank: int) -> tuple[int, int]:
    longest = -(-num_rows // world_size)
    first = min(rank * longest, num_rows)
    count = min(longest, num_rows - first)
    return (first, count) if count else (0, 0)


def wrong_rest_to_the_last(num_rows: int, world_size: int, rank: int) -> tuple[int, int]:
    """The rows that are left over do not go to the last rank: torch.chunk rounds the length up, so the last is short."""
    count = num_rows // world_size
    return rank * count, count + (num_rows % world_size if rank == world_size - 1 else 0)


def wrong_spread_like_numpy(num_rows: int, world_size: int, rank: int) -> tuple[int, int]:
    """The rest is not spread one row each, as `numpy.array_split` does; `Shard` follows `torch.chunk`."""
    count, rest = divmod(num_rows, world_size)
    return rank * count + min(rank, rest), count + (rank < rest)


def check(answer: Callable[[int, int, int], tuple[int, int]], rank: int, world_size: int) -> Iterator[Case]:
    mesh = init_device_mesh("cpu", (world_size,))
    for num_rows in (8, 7, 3):
        rows = distribute_tensor(torch.arange(num_rows), mesh, [Shard(0)]).to_local().tolist()
        expected = (rows[0], len(rows)) if rows else (0, 0)
        yield Case(answer(num_rows, world_size, rank), expected, where=f"{num_rows} rows over {world_size} ranks")
