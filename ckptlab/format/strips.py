"""Strips: equally long runs of bytes at equal distances. A box of rows is one run, a box of columns one strip.

What is done to a whole strip at once is done at the speed of memory; run by run it would be done at that of Python.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.uint8]
"""The bytes of a strip, (number of runs, length of a run)."""


class Strip(NamedTuple):
    """Runs of `length` bytes that stand in two places: run i at `begin + i * step`, and at `local_begin + i * local_step`.

    What `begin` counts in is a file or a tensor; `local_begin` counts in what one rank holds of the tensor.
    """

    begin: int
    local_begin: int
    length: int
    num_runs: int = 1
    step: int = 0
    local_step: int = 0

    def moved(self, by: int) -> "Strip":
        """Give the strip that begins `by` bytes farther."""
        return self._replace(begin=self.begin + by)

    def some(self, first: int, num_runs: int) -> "Strip":
        """Give `num_runs` of its runs, from run number `first` on."""
        begin, local_begin = self.begin + first * self.step, self.local_begin + first * self.local_step
        return self._replace(begin=begin, local_begin=local_begin, num_runs=num_runs)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Give each run as (begin, local begin, length)."""
        return ((one.begin, one.local_begin, one.length) for one in (self.some(n, 1) for n in range(self.num_runs)))


def rows(buffer: Any, begin: int, length: int, num_runs: int, step: int) -> Rows:
    """View runs of a buffer of bytes, without a copy; `ValueError` when they do not lie in it."""
    return np.ndarray((num_runs, length), np.uint8, buffer, begin, (step, 1))


def cut_at_blocks(strip: Strip, block_bytes: int) -> Iterator[Strip]:
    """Cut a strip so that each piece begins and ends in one block; a run that goes on in the next block is cut.

    >>> [[run[:1] + run[2:] for run in cut.runs()] for cut in cut_at_blocks(Strip(0, 0, 4, 3, step=6), block_bytes=10)]
    [[(0, 4), (6, 4)], [(12, 4)]]
    >>> [[run[:1] + run[2:] for run in cut.runs()] for cut in cut_at_blocks(Strip(0, 0, 4, 3, step=6), block_bytes=8)]
    [[(0, 4)], [(6, 2)], [(8, 2)], [(12, 4)]]
    """
    number = 0
    while strip.length and number < strip.num_runs:
        first = strip.some(number, 1)
        room = (first.begin // block_bytes + 1) * block_bytes - first.begin
        if room < strip.length:
            yield from _cut_run(first, room, block_bytes)
            number += 1
        else:
            fitting = 1 + (room - strip.length) // strip.step if strip.step else strip.num_runs
            fitting = min(fitting, strip.num_runs - number)
            yield strip.some(number, fitting)
            number += fitting


def _cut_run(run: Strip, room: int, block_bytes: int) -> Iterator[Strip]:
    """Cut one run of which the first block has `room` bytes."""
    for cut in (0, *range(room, run.length, block_bytes)):
        length = min(room if cut == 0 else block_bytes, run.length - cut)
        yield Strip(run.begin + cut, run.local_begin + cut, length)
