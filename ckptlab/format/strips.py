"""Strips: equally long runs of bytes at equal distances. A box of rows is one run, a box of columns one strip.

What is done to a whole strip at once is done at the speed of memory; run by run it would be done at that of Python.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.uint8]
"""The bytes of a strip: a run a row."""


class Strip(NamedTuple):
    """Run i takes `length` bytes, from `source + i * source_step` in one place and `target + i * target_step` in the other."""

    source: int
    target: int
    length: int
    num_runs: int = 1
    source_step: int = 0
    target_step: int = 0

    def moved(self, by: int) -> "Strip":
        """Give the strip whose source lies `by` bytes farther."""
        return self._replace(source=self.source + by)

    def part(self, first: int, num_runs: int) -> "Strip":
        """Give `num_runs` of its runs, from run number `first` on."""
        source, target = self.source + first * self.source_step, self.target + first * self.target_step
        return self._replace(source=source, target=target, num_runs=num_runs)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Give each run as (source, target, length)."""
        sources = (self.source + number * self.source_step for number in range(self.num_runs))
        return ((source, self.target + number * self.target_step, self.length) for number, source in enumerate(sources))


def rows(buffer: Any, begin: int, length: int, num_runs: int, step: int) -> Rows:
    """View runs of a buffer of bytes, without a copy; `ValueError` when they do not lie in it."""
    return np.ndarray((num_runs, length), np.uint8, buffer, begin, (step, 1))


def cut_at_blocks(strip: Strip, block_bytes: int) -> Iterator[Strip]:
    """Cut a strip so that what remains of its source lies in one block each; a run that goes on in the next block is cut.

    Three runs of 4 bytes, 6 apart, from byte 0, and blocks of 10: (0-4, 6-10) and (12-16). Blocks of 8: 0-4, 6-8, 8-10, 12-16.
    """
    number = 0
    while number < strip.num_runs:
        first = strip.part(number, 1)
        block_end = (first.source // block_bytes + 1) * block_bytes
        room = block_end - first.source - strip.length
        if room >= 0:
            fitting = 1 + room // strip.source_step if strip.source_step else strip.num_runs
            fitting = min(fitting, strip.num_runs - number)
            yield strip.part(number, fitting)
            number += fitting
        else:
            yield from _cut_run(first, block_bytes)
            number += 1


def _cut_run(run: Strip, block_bytes: int) -> Iterator[Strip]:
    at, end = run.source, run.source + run.length
    while at < end:
        stop = min((at // block_bytes + 1) * block_bytes, end)
        yield Strip(at, run.target + at - run.source, stop - at)
        at = stop
