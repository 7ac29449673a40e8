"""Blocks that several readers read in part: each sums the spans that it read, and spans that tile a block prove it.

A CRC is linear, so nobody has to read what he does not want for the sake of the sum alone. See `checksums`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ckptlab.format.checksums import block_ranges, block_sum, contribution
from ckptlab.format.records import FileRecord

Spans = dict[str, dict[str, list[Sequence[int]]]]
"""By file and block the spans that were read, (begin, end, contribution); as JSON carries them."""


class SpanSums:
    """The spans that one reader read of the files of a step."""

    def __init__(self, files: Mapping[str, FileRecord], block_bytes: int) -> None:
        self._files, self._block_bytes = files, block_bytes
        self._spans: Spans = defaultdict(lambda: defaultdict(list))

    def add(self, file: str, begin: int, data: memoryview) -> None:
        """Count bytes that were read from `begin` of the file on, all in one block."""
        block, end = begin // self._block_bytes, begin + len(data)
        block_end = min((block + 1) * self._block_bytes, self._files[file].num_bytes)
        assert end <= block_end, "in one block"
        self._spans[file][str(block)].append((begin, end, contribution(data, block_end - end)))

    def in_doubt(self) -> Spans:
        """Return the spans of the blocks that this reader's own spans do not prove."""
        doubtful = unproved([self._spans], self._files, self._block_bytes)
        return {file: {str(block): self._spans[file][str(block)] for block in blocks} for file, blocks in doubtful.items()}


def unproved(everybody: Iterable[Spans], files: Mapping[str, FileRecord], block_bytes: int) -> dict[str, list[int]]:
    """Return by file the blocks of which the readers' spans leave a gap, overlap, or have another sum than was written.

    Readers of the same span with the same contribution count as one.
    """
    together: dict[str, dict[int, set[tuple[int, ...]]]] = defaultdict(lambda: defaultdict(set))
    for told in everybody:
        for file, blocks in told.items():
            for block, spans in blocks.items():
                together[file][int(block)].update(map(tuple, spans))
    doubtful = {}
    for file, in_file in together.items():
        record = files[file]
        ranges = block_ranges(record.num_bytes, block_bytes)
        bad = [block for block, spans in sorted(in_file.items()) if not _prove(spans, *ranges[block], record.crc32[block])]
        if bad:
            doubtful[file] = bad
    return doubtful


def _prove(spans: Iterable[tuple[int, ...]], begin: int, end: int, crc: int) -> bool:
    """Whether the spans tile the block, and make up its sum."""
    at, xor = begin, 0
    for span_begin, span_end, part in sorted(spans):
        if span_begin != at:
            return False
        at, xor = span_end, xor ^ part
    return at == end and block_sum(xor, end - begin) == crc
