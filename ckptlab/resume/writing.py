"""Write a step to every place that is due, one after the other; each place has all of it or nothing."""

import logging
import time
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from pathlib import Path

from ckptlab.checkpoint.collectives import Group
from ckptlab.errors import SaveError
from ckptlab.steps.events import WriteEvent, with_stall

logger = logging.getLogger("ckptlab")
Write = Callable[..., Path]
"""From the group and `write_event=` to the directory of the step."""
Stall = Callable[[], float]


def write_all(writes: Sequence[Write], write_event: WriteEvent, stall: Stall, group: Group) -> Path:
    """Write to each place and return the directory of the step in the last. Every rank calls it.

    A place that fails does not keep the step from the others; where the last has it, that is only logged.

    Args:
        writes: at least one.
        write_event: called on the coordinator.
        stall: asked for each place how many seconds training waited for it.
        group: the ranks.

    Raises:
        SaveError: the last place failed, or any lost a rank.
    """
    *before, last = writes
    for write in before:
        try:
            write(group, write_event=with_stall(write_event, stall))
        except SaveError as error:
            if error.lost:  # the next place would wait for that rank too
                raise
            logger.warning("%s", error)
    return last(group, write_event=with_stall(write_event, stall))


def laps(since: float) -> Stall:
    """Return what tells the seconds since it was asked last, at first those `since`, on `time.monotonic`."""
    times = [since]

    def lap() -> float:
        times.append(time.monotonic())
        return times[-1] - times[-2]

    return lap


def once(seconds: float) -> Stall:
    """Return what tells these seconds the first time, and then none."""
    told = chain([seconds], repeat(0.0))
    return lambda: next(told)
