"""A slice of the global batch

`samples` is one global batch, in its order. Return what `rank` trains on: `accumulate` micro-batches, all equally long. The
rank's part of the global batch is contiguous, rank 0 has the first, and the micro-batches are contiguous parts of that. So the
ranks' samples, one rank after the other, are the same batch at every world size. Return `None` where it does not come out even.
"""

import random
from collections.abc import Callable, Iterator
from itertools import islice

from ckptlab.course.exercise import Case
from ckptlab.errors import UsageError
from ckptlab.resume import ResumableSampler
from ckptlab.resume.sampler import order

MINUTES = 5
WORLD_SIZES = (1, 2, 4)
HINTS = (
    "In how many micro-batches is the global batch cut, by all ranks together? That number has to divide its length.",
    "Number the micro-batches from 0, in the order of the batch: rank 0 has the first `accumulate` of them. Which has rank 1?",
    "`size = len(samples) // (world_size * accumulate)`; number n is `samples[n * size : (n + 1) * size]`.",
)


def slice_of_batch(samples: list[int], rank: int, world_size: int, accumulate: int) -> list[list[int]] | None:
    """Return the micro-batches of `rank`, or None when the batch cannot be dealt out evenly."""
    raise NotImplementedError


def solution(samples: list[int], rank: int, world_size: int, accumulate: int) -> list[list[int]] | None:
    size, rest = divmod(len(samples), world_size * accumulate)
    if rest:
        return None
    numbers = range(rank * accumulate, (rank + 1) * accumulate)
    return [samples[number * size : (number + 1) * size] for number in numbers]


def wrong_every_nth(samples: list[int], rank: int, world_size: int, accumulate: int) -> list[list[int]] | None:
    """You deal sample by sample, like cards: then the ranks' samples, one rank after the other, depend on the world size."""
    if len(samples) % (world_size * accumulate):
        return None
    own = samples[rank::world_size]
    size = len(own) // accumulate
    return [own[at : at + size] for at in range(0, len(own), size)]


def wrong_micro_batches_first(samples: list[int], rank: int, world_size: int, accumulate: int) -> list[list[int]] | None:
    """You cut into micro-batches and then among the ranks, so that no rank's part is contiguous. The ranks come first."""
    size, rest = divmod(len(samples), world_size * accumulate)
    if rest:
        return None
    numbers = range(rank, world_size * accumulate, world_size)
    return [samples[number * size : (number + 1) * size] for number in numbers]


def wrong_rounded_down(samples: list[int], rank: int, world_size: int, accumulate: int) -> list[list[int]] | None:
    """Rounded down, the last samples of the batch are left out, and another world size trains on other samples: refuse it."""
    size = len(samples) // (world_size * accumulate)
    numbers = range(rank * accumulate, (rank + 1) * accumulate)
    return [samples[number * size : (number + 1) * size] for number in numbers]


def wrong_accumulate_forgotten(samples: list[int], rank: int, world_size: int, accumulate: int) -> list[list[int]] | None:
    """The world size divides it, but each rank cuts its part again, in `accumulate`: their product has to divide the batch."""
    if len(samples) % world_size:
        return None
    part = len(samples) // world_size
    own, size = samples[rank * part : (rank + 1) * part], -(-part // accumulate)
    return [own[at : at + size] for at in range(0, part, size)]


def check(answer: Callable[[list[int], int, int, int], list[list[int]] | None], rank: int, world_size: int) -> Iterator[Case]:
    drawn = random.Random("7.3")
    for global_batch, accumulate in ((8, 1), (16, 2), (24, 3), (6, 1), (12, 2), (8, 4)):
        num_samples, seed, epoch = global_batch * drawn.randint(3, 5), drawn.randrange(99), drawn.randrange(9)
        position = global_batch * drawn.randrange(1, 3)
        samples = order(num_samples, seed, epoch)[position : position + global_batch].tolist()
        found = answer(list(samples), rank, world_size, accumulate)
        expected = _dealt(num_samples, global_batch, seed, accumulate, epoch, position)
        yield Case(found, expected, where=f"{global_batch} samples, {world_size} ranks, accumulate {accumulate}")


def _dealt(
    num_samples: int, global_batch: int, seed: int, accumulate: int, epoch: int, position: int
) -> list[list[int]] | None:
    """Give what `ResumableSampler` deals out to this rank at that position; None when it refuses to."""
    try:
        sampler = ResumableSampler(num_samples, global_batch=global_batch, seed=seed, accumulate=accumulate)
    except UsageError:
        return None
    sampler.epoch, sampler.position = epoch, position
    return list(islice(sampler, accumulate))
