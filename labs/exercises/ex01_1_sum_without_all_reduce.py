"""A sum without all_reduce

Each rank calls your function with a number of its own. Return the sum of all ranks' numbers, on every rank, without
`dist.all_reduce`, which is taken away here. Every other call of `torch.distributed` is yours: `dist.all_gather`,
`dist.gather`, `dist.broadcast`, `dist.send` and `dist.recv`, and more.
"""

import random
from collections.abc import Callable, Iterator
from unittest.mock import patch

import torch
import torch.distributed as dist

from ckptlab.course.exercise import Case

MINUTES = 6
WORLD_SIZES = (1, 2, 3, 4)
HINTS = (
    "Collectives move tensors: begin with `mine = torch.tensor(value)`, and end with `.item()`.",
    "Who needs whose number? `dist.broadcast(tensor, source)` gives rank `source`'s number to all, "
    "and overwrites what was in `tensor` on the others.",
    "`dist.all_gather(parts, mine)` fills a list of `world_size` tensors that you made before: "
    "`parts = [torch.zeros_like(mine) for _ in range(world_size)]`.",
)


def sum_over_ranks(value: int, rank: int, world_size: int) -> int:
    """Return the sum of all ranks' `value`, on every rank."""
    raise NotImplementedError


def solution(value: int, rank: int, world_size: int) -> int:
    mine = torch.tensor(value)
    parts = [torch.zeros_like(mine) for _ in range(world_size)]
    dist.all_gather(parts, mine)
    return int(sum(parts))


def wrong_only_one_rank_knows(value: int, rank: int, world_size: int) -> int:
    """`dist.reduce` gives the sum to one rank only; what it leaves on the others means nothing. That rank has to tell them."""
    total = torch.tensor(value)
    dist.reduce(total, dst=0)
    return int(total)


def wrong_broadcast_over_the_own_number(value: int, rank: int, world_size: int) -> int:
    """`dist.broadcast` writes into the tensor that you hand it: after the first one every rank's own number is gone.

    Hand it a copy.
    """
    mine, total = torch.tensor(value), 0
    for source in range(world_size):
        dist.broadcast(mine, source)
        total += int(mine)
    return total


def wrong_own_number_left_out(value: int, rank: int, world_size: int) -> int:
    """That is the sum of the others. A rank's own number counts too."""
    total = torch.zeros((), dtype=torch.int64)
    parts = [torch.zeros_like(total) for _ in range(world_size)]
    dist.all_gather(parts, torch.tensor(value))
    return int(sum(parts)) - value


def check(answer: Callable[[int, int, int], int], rank: int, world_size: int) -> Iterator[Case]:
    draw = random.Random("1.1")
    for _ in range(2):
        numbers = [draw.randrange(1, 1000) for _ in range(world_size)]
        expected = torch.tensor(numbers[rank])
        dist.all_reduce(expected)
        with patch.object(dist, "all_reduce", side_effect=ValueError("dist.all_reduce is taken away in this exercise")):
            found = answer(numbers[rank], rank, world_size)
        yield Case(found, int(expected), where=f"the ranks have {', '.join(map(str, numbers))}")
