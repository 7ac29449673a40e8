"""Name the rank that hangs

All ranks call one collective after the other. In the last one they wait until their timeout, because one rank hangs and does
not come. Each rank has kept a record: `started`, the calls that it began; `finished`, those that ended without an error;
`error`, what the last call raised, or "". You get all records, in the order of the ranks. Return the number of the rank that
hangs.
"""

import functools
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

import torch.distributed as dist

from ckptlab.course.exercise import Case

MINUTES = 5
WORLD_SIZES = (2, 3, 4)
HINTS = (
    "Which ranks have an error? Are they where they should be, or not?",
    "The calls are barriers: they end on no rank before all ranks have begun them. Who has not begun the last one?",
    "Compare `record.started`. `enumerate(records)` gives the ranks' numbers with their records.",
)

_TIMEOUT = timedelta(seconds=0.5)


class Record(NamedTuple):
    """What one rank has counted."""

    started: int
    finished: int
    error: str


def rank_that_hangs(records: list[Record]) -> int:
    """Return the number of the rank that hangs."""
    raise NotImplementedError


def solution(records: list[Record]) -> int:
    started = [record.started for record in records]
    return started.index(min(started))


def wrong_began_and_did_not_finish(records: list[Record]) -> int:
    """A rank that began the call and did not finish it is where it should be: it waited there for the one that did not come."""
    return next(rank for rank, record in enumerate(records) if record.started != record.finished)


def wrong_fewest_finished(records: list[Record]) -> int:
    """All ranks have finished equally many calls, because the last one ended on none: yours is just the first rank of them."""
    finished = [record.finished for record in records]
    return finished.index(min(finished))


def check(answer: Callable[[list[Record]], int], rank: int, world_size: int) -> Iterator[Case]:
    draw = random.Random(f"1.2 {world_size}")
    victim, calls = draw.randrange(world_size), draw.randrange(2, 9)
    records = _hang(rank, world_size, victim, calls)
    told = ", ".join(f"({record.started}, {record.finished})" for record in records)
    yield Case(answer(list(records)), victim, where=f"the ranks have (started, finished) = {told}")


@functools.cache  # one hang for all answers: it takes a timeout
def _hang(rank: int, world_size: int, victim: int, calls: int) -> list[Record]:
    """Call collectives until the victim does not come any more; return what each rank has counted."""
    group = dist.new_group()  # of its own: the last call stays open in it
    for _ in range(calls - 1):
        dist.barrier(group)
    started = finished = calls - 1
    error = ""
    if rank != victim:
        started += 1
        try:
            dist.barrier(group, async_op=True).wait(_TIMEOUT)
        except RuntimeError as raised:
            error = str(raised)
    records = [Record(0, 0, "")] * world_size
    dist.all_gather_object(records, Record(started, finished, error))
    return records
