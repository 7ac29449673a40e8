"""The byte runs of a box

A tensor of `shape` lies in a file row after row, `item_bytes` an element. A rank holds the box that begins at `offset` and
has `box_shape`. Say where the bytes of the box lie: `(begin, length)` of each run, counted from the tensor's first byte, in
rising order and in as few runs as possible.
"""

import random
from collections.abc import Callable, Iterator

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from ckptlab.course.exercise import Case

MINUTES = 7
WORLD_SIZES = (1, 2, 4)
HINTS = (
    "Number the elements of a 4 x 6 tensor from 0, row by row. Which numbers are in rows 1-2, and which in columns 3-5?",
    "Element (row, column) has the number `row * shape[1] + column`: the length of a row is the tensor's, not the box's.",
    "Where the box has all columns, its rows touch: one run. Otherwise it is one run a row, from row `offset[0]` on.",
)


def runs_of_box(
    shape: tuple[int, int], offset: tuple[int, int], box_shape: tuple[int, int], item_bytes: int
) -> list[tuple[int, int]]:
    """Return `(begin, length)` in bytes of each run of the box."""
    raise NotImplementedError


def solution(
    shape: tuple[int, int], offset: tuple[int, int], box_shape: tuple[int, int], item_bytes: int
) -> list[tuple[int, int]]:
    num_rows, num_columns = box_shape
    if num_columns == shape[1]:
        return [(offset[0] * shape[1] * item_bytes, num_rows * num_columns * item_bytes)]
    firsts = [row * shape[1] + offset[1] for row in range(offset[0], offset[0] + num_rows)]
    return [(first * item_bytes, num_columns * item_bytes) for first in firsts]


def wrong_one_run(
    shape: tuple[int, int], offset: tuple[int, int], box_shape: tuple[int, int], item_bytes: int
) -> list[tuple[int, int]]:
    """A box of columns is not one run: after its part of a row come the other ranks' columns of that row."""
    first = offset[0] * shape[1] + offset[1]
    return [(first * item_bytes, box_shape[0] * box_shape[1] * item_bytes)]


def wrong_one_run_a_row(
    shape: tuple[int, int], offset: tuple[int, int], box_shape: tuple[int, int], item_bytes: int
) -> list[tuple[int, int]]:
    """These are the right bytes in too many runs: rows that the box has whole touch in the file, so one run takes them all."""
    firsts = [row * shape[1] + offset[1] for row in range(offset[0], offset[0] + box_shape[0])]
    return [(first * item_bytes, box_shape[1] * item_bytes) for first in firsts]


def wrong_row_length_of_the_box(
    shape: tuple[int, int], offset: tuple[int, int], box_shape: tuple[int, int], item_bytes: int
) -> list[tuple[int, int]]:
    """From one row to the next it is as far as a row of the tensor is long, not a row of the box."""
    if box_shape[1] == shape[1]:
        return [(offset[0] * shape[1] * item_bytes, box_shape[0] * box_shape[1] * item_bytes)]
    firsts = [row * box_shape[1] + offset[1] for row in range(offset[0], offset[0] + box_shape[0])]
    return [(first * item_bytes, box_shape[1] * item_bytes) for first in firsts]


def wrong_in_elements(
    shape: tuple[int, int], offset: tuple[int, int], box_shape: tuple[int, int], item_bytes: int
) -> list[tuple[int, int]]:
    """These are elements; a file is counted in bytes, `item_bytes` for each element."""
    if box_shape[1] == shape[1]:
        return [(offset[0] * shape[1], box_shape[0] * box_shape[1])]
    return [(row * shape[1] + offset[1], box_shape[1]) for row in range(offset[0], offset[0] + box_shape[0])]


def check(
    answer: Callable[[tuple[int, int], tuple[int, int], tuple[int, int], int], list[tuple[int, int]]],
    rank: int,
    world_size: int,
) -> Iterator[Case]:
    line = init_device_mesh("cpu", (world_size,))
    square = init_device_mesh("cpu", (min(2, world_size), max(1, world_size // 2)))
    drawn = random.Random("2.2")
    for mesh, placements in ((line, [Shard(0)]), (line, [Shard(1)]), (square, [Shard(0), Shard(1)])):
        shape, item_bytes = (drawn.choice((4, 7, 8)), drawn.choice((4, 6, 7))), drawn.choice((2, 4))
        numbers = distribute_tensor(torch.arange(shape[0] * shape[1]).view(shape), mesh, placements)
        offset, box_shape, runs = _box_and_runs(numbers, item_bytes)
        where = f"shape {shape}, box at {offset} of {box_shape}, {item_bytes} bytes an element"
        found = answer(shape, offset, box_shape, item_bytes)
        if isinstance(found, list):
            found = [(run[0], run[1]) if isinstance(run, list) and len(run) == 2 else run for run in found]
        yield Case(found, runs, where=where)


def _box_and_runs(numbers: DTensor, item_bytes: int) -> tuple[tuple[int, int], tuple[int, int], list[tuple[int, int]]]:
    """Read off a rank's part of a tensor that holds its elements' numbers: offset, shape, and the runs of the numbers."""
    local = numbers.to_local()
    own = local.flatten().tolist()
    begins = [at for at, number in enumerate(own) if at == 0 or number != own[at - 1] + 1]
    runs = [(own[at] * item_bytes, (end - at) * item_bytes) for at, end in zip(begins, [*begins[1:], len(own)], strict=True)]
    return divmod(own[0], numbers.shape[1]), (local.shape[0], local.shape[1]), runs
