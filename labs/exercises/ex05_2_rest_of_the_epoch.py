"""A sampler that resumes anywhere

A run stands at `position` of an epoch: so many samples of it were trained on, by all ranks together. Return the batches that
`rank` trains on until the epoch ends. An epoch's order is `order(num_samples, seed, epoch)`. It is cut into global batches of
`global_batch` samples; what is left after the last full one is left out. Each rank takes one contiguous part of each
global batch, all equally long, rank 0 the first.
"""

import random
from collections.abc import Callable, Iterator

from torch.utils.data import DataLoader

from ckptlab.course.exercise import Case
from ckptlab.resume import ResumableSampler
from ckptlab.resume.sampler import order

MINUTES = 8
WORLD_SIZES = (1, 2, 4)
HINTS = (
    "First the whole epoch's order, then where the batches begin that are left: from `position` on, `global_batch` apart.",
    "The last full batch begins at `num_samples - global_batch` or before it: where does the `range` of the begins end?",
    "With `part = global_batch // world_size`, the part of `rank` begins `rank * part` behind the batch's begin.",
)


def rest_of_the_epoch(
    num_samples: int, global_batch: int, seed: int, epoch: int, position: int, rank: int, world_size: int
) -> list[list[int]]:
    """Return the batches of `rank` from `position` to the end of the epoch."""
    raise NotImplementedError


def solution(
    num_samples: int, global_batch: int, seed: int, epoch: int, position: int, rank: int, world_size: int
) -> list[list[int]]:
    samples = order(num_samples, seed, epoch).tolist()
    part = global_batch // world_size
    begins = range(position, num_samples - global_batch + 1, global_batch)
    return [samples[begin + rank * part : begin + (rank + 1) * part] for begin in begins]


def wrong_epoch_0_again(
    num_samples: int, global_batch: int, seed: int, epoch: int, position: int, rank: int, world_size: int
) -> list[list[int]]:
    """The order is epoch 0's in every epoch: who resumes in a later one trains on other samples than were left."""
    samples = order(num_samples, seed, 0).tolist()
    part = global_batch // world_size
    begins = range(position, num_samples - global_batch + 1, global_batch)
    return [samples[begin + rank * part : begin + (rank + 1) * part] for begin in begins]


def wrong_position_of_one_rank(
    num_samples: int, global_batch: int, seed: int, epoch: int, position: int, rank: int, world_size: int
) -> list[list[int]]:
    """`position` counts the samples of all ranks together. You let each rank skip as many of its own, so samples are lost."""
    samples = order(num_samples, seed, epoch).tolist()
    part = global_batch // world_size
    begins = range(position * world_size, num_samples - global_batch + 1, global_batch)
    return [samples[begin + rank * part : begin + (rank + 1) * part] for begin in begins]


def wrong_cut_by_ranks_first(
    num_samples: int, global_batch: int, seed: int, epoch: int, position: int, rank: int, world_size: int
) -> list[list[int]]:
    """You give each rank a part of the epoch and cut that into batches: another number of ranks makes other global batches."""
    samples = order(num_samples, seed, epoch).tolist()
    num_batches, part = num_samples // global_batch, global_batch // world_size
    own = samples[rank * num_batches * part : (rank + 1) * num_batches * part]
    return [own[at * part : (at + 1) * part] for at in range(position // global_batch, num_batches)]


def wrong_dealt_in_turn(
    num_samples: int, global_batch: int, seed: int, epoch: int, position: int, rank: int, world_size: int
) -> list[list[int]]:
    """The global batches are right, but you deal them out in turn, as `DistributedSampler` does. Give each rank one piece."""
    samples = order(num_samples, seed, epoch).tolist()
    begins = range(position, num_samples - global_batch + 1, global_batch)
    return [samples[begin : begin + global_batch][rank::world_size] for begin in begins]


def wrong_last_batch_too(
    num_samples: int, global_batch: int, seed: int, epoch: int, position: int, rank: int, world_size: int
) -> list[list[int]]:
    """At the epoch's edge fewer than `global_batch` samples are left. They are no batch: some ranks would get fewer or none."""
    samples = order(num_samples, seed, epoch).tolist()
    part = global_batch // world_size
    begins = range(position, num_samples, global_batch)
    return [samples[begin + rank * part : begin + (rank + 1) * part] for begin in begins]


def check(answer: Callable[..., list[list[int]]], rank: int, world_size: int) -> Iterator[Case]:
    drawn = random.Random("5.2")
    for place in ("in the middle", "at the beginning", "at the end"):
        global_batch, num_batches, epoch, seed = (
            4 * drawn.randint(1, 2),
            drawn.randint(4, 6),
            drawn.randint(1, 5),
            drawn.randrange(99),
        )
        num_samples = num_batches * global_batch + drawn.randrange(1, global_batch)
        done = {"in the middle": drawn.randint(1, num_batches // 2), "at the beginning": 0, "at the end": num_batches}[place]
        expected = _unbroken(num_samples, global_batch, seed, epoch)[done:]
        found = answer(num_samples, global_batch, seed, epoch, done * global_batch, rank, world_size)
        where = f"position {done * global_batch} of {num_samples} samples, {global_batch} a batch, {world_size} ranks"
        yield Case(found, expected, where=where.replace(" 1 ranks", " 1 rank"))


def _unbroken(num_samples: int, global_batch: int, seed: int, epoch: int) -> list[list[int]]:
    """Let a loader run through the epoch without a break; return this rank's batches."""
    sampler = ResumableSampler(num_samples, global_batch=global_batch, seed=seed)
    sampler.epoch = epoch
    loader: DataLoader[int] = DataLoader(range(num_samples), batch_sampler=sampler)  # type: ignore[arg-type]  # a sequence does
    return [batch.tolist() for batch in loader]
