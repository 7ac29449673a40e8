"""CRC-32 of fixed blocks of a file, from runs of bytes that several writers sum on their own.

A CRC is linear, so each writer sums the runs it writes, from its own memory, and the contributions of all
writers XOR together; `zlib.crc32` of a finished block gives the same number. A CRC-32 finds every single flipped
bit and other damage with 1 - 2^-32; it is no signature. Formulas: on-disk.md, section 1.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from isal.isal_zlib import crc32, crc32_combine

from ckptlab.errors import FormatError
from ckptlab.format.strips import Rows, Strip, cut_at_blocks, rows

BLOCK_BYTES = 4 * 2**20
MAX_GAP = 16  # rows farther apart than so many times their length are summed one by one, not in an image with zeros between
ONES = 0xFFFF_FFFF  # a CRC-32 starts from all ones and is inverted at the end


def contribution(run: bytes | memoryview, bytes_after: int) -> int:
    """Sum one run of a block as if the rest of the block were zeros; `bytes_after` are the block's bytes after the run.

    The start value undoes the initial inversion and the XOR the final one: what stays is linear in the run's bits.
    """
    return crc32_combine(crc32(run, ONES) ^ ONES, 0, bytes_after)


def block_sum(xor: int, block_bytes: int) -> int:
    """Turn the XOR of all contributions to a block into the CRC-32 of its bytes."""
    return crc32_combine(ONES, ONES, block_bytes) ^ xor


def block_ranges(file_bytes: int, block_bytes: int) -> list[tuple[int, int]]:
    """Cut a file into blocks (begin, end); the last may be short, and an empty file has none."""
    return [(begin, min(begin + block_bytes, file_bytes)) for begin in range(0, file_bytes, block_bytes)]


def file_sum(sums: Sequence[int], file_bytes: int, block_bytes: int) -> int:
    """Combine the sums of a file's blocks into the CRC-32 of the whole file, without its bytes."""
    combined = 0
    for one, (begin, end) in zip(sums, block_ranges(file_bytes, block_bytes), strict=True):
        combined = crc32_combine(combined, one, end - begin)
    return combined


@dataclass(slots=True)
class FileSums:
    """One writer's part of one file's sums: for each block that it touched, the XOR of its runs and the bytes it wrote.

    XOR hides a byte that is written twice; the number of bytes written does not.
    """

    file_bytes: int
    block_bytes: int
    _xor: defaultdict[int, int] = field(init=False, default_factory=lambda: defaultdict(int))
    _written: defaultdict[int, int] = field(init=False, default_factory=lambda: defaultdict(int))

    def add(self, begin: int, data: bytes | memoryview) -> None:
        """Count bytes (not items of a wider format) that this writer writes from `begin` of the file on; copies nothing."""
        view = memoryview(data)
        end = begin + view.nbytes
        if begin < 0 or end > self.file_bytes or view.nbytes != len(view):
            raise FormatError(
                f"cannot sum {view.nbytes} bytes at {begin}: a file of {self.file_bytes} bytes, given as flat bytes"
            )
        for cut in cut_at_blocks(Strip(begin, 0, len(view)), self.block_bytes):
            self._add(cut.begin, view[cut.local_begin : cut.local_begin + cut.length], cut.length)

    def add_rows(self, begin: int, step: int, data: Rows) -> None:
        """Count the rows of `data`, `step` bytes apart from `begin` of the file on, all in one block."""
        count, length = data.shape
        if count == 1 or step > MAX_GAP * length:
            for number, row in enumerate(data):
                self.add(begin + number * step, row.data)
            return
        assert begin // self.block_bytes == (begin + (count - 1) * step + length - 1) // self.block_bytes, "in one block"
        image = np.zeros((count - 1) * step + length, np.uint8)  # zeros add nothing to what is linear
        rows(image, 0, length, count, step)[...] = data
        self._add(begin, image.data, data.size)

    def _add(self, begin: int, run: memoryview, num_written: int) -> None:
        block = begin // self.block_bytes
        block_end = min((block + 1) * self.block_bytes, self.file_bytes)
        self._xor[block] ^= contribution(run, block_end - begin - len(run))
        self._written[block] += num_written

    def merge(self, other: "FileSums") -> None:
        """Add what another writer of the same file wrote."""
        if (self.file_bytes, self.block_bytes) != (other.file_bytes, other.block_bytes):
            raise FormatError(f"sums of different files: {other.file_bytes} bytes, expected {self.file_bytes}")
        for block, written in other._written.items():
            self._xor[block] ^= other._xor[block]
            self._written[block] += written

    def finish(self) -> list[int]:
        """Give the CRC-32 of every block, once all writers are merged; refuse a block that is not covered exactly."""
        sums = []
        for block, (begin, end) in enumerate(block_ranges(self.file_bytes, self.block_bytes)):
            if (written := self._written.get(block, 0)) != end - begin:
                word = "too few: a run is missing" if written < end - begin else "too many: a run was written twice"
                raise FormatError(f"block {block} (bytes {begin}-{end}): {written} of {end - begin} bytes written, {word}")
            sums.append(block_sum(self._xor[block], end - begin))
        return sums

    def to_json(self) -> dict[str, list[int]]:
        """Give `{"<block>": [xor, bytes written]}`, only for blocks that were touched."""
        return {str(block): [self._xor[block], written] for block, written in sorted(self._written.items())}

    @classmethod
    def from_json(cls, file_bytes: int, block_bytes: int, parts: Mapping[str, Sequence[int]]) -> Self:
        """Read what `to_json` gave on another rank, for the same file."""
        sums = cls(file_bytes, block_bytes)
        for block, (xor, written) in parts.items():
            sums._xor[int(block)], sums._written[int(block)] = xor, written
        return sums
