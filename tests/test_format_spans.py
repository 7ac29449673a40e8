"""Blocks that are proved by the parts that several readers read of them."""

import json
import zlib

import pytest

from ckptlab.format.records import FileRecord
from ckptlab.format.spans import SpanSums, unproved

DATA = bytes(range(1, 26))  # blocks 0-10, 10-20 and 20-25
FILES = {"f": FileRecord(25, tuple(zlib.crc32(DATA[begin : begin + 10]) for begin in (0, 10, 20)))}


def in_doubt(*spans: tuple[int, int], data: bytes = DATA) -> dict:
    """Return what a reader of these spans, given as begin and end, cannot prove; as it is sent."""
    sums = SpanSums(FILES, 10)
    for begin, end in spans:
        sums.add("f", begin, memoryview(data)[begin:end])
    return json.loads(json.dumps(sums.in_doubt()))


def test_who_reads_a_whole_block_proves_it_alone_in_whatever_parts() -> None:
    assert in_doubt((0, 3), (20, 25), (7, 10), (3, 7), (13, 14))["f"].keys() == {"1"}


@pytest.mark.parametrize(
    ("parts", "doubtful"),
    [
        ([[(0, 4), (10, 20)], [(4, 10), (20, 25)]], {}),
        ([[(0, 4)], [(0, 4), (4, 10)], [(4, 10)]], {}),  # replicas that read the same count as one
        ([[(0, 4)], [(5, 10)]], {"f": [0]}),
        ([[(1, 10)]], {"f": [0]}),
        ([[(0, 9)]], {"f": [0]}),
        ([[(0, 6)], [(4, 10)]], {"f": [0]}),
        ([[(0, 4), (20, 22)], [(4, 10)]], {"f": [2]}),
    ],
)
def test_parts_of_several_readers_prove_a_block_that_they_tile(parts: list, doubtful: dict) -> None:
    assert unproved([in_doubt(*spans) for spans in parts], FILES, 10) == doubtful


def test_a_bit_that_one_reader_has_wrong_leaves_the_block_in_doubt() -> None:
    wrong = bytes([DATA[0] ^ 1, *DATA[1:]])
    assert in_doubt((0, 10), (10, 20), data=wrong).keys() == {"f"}
    assert unproved([in_doubt((0, 4), data=wrong), in_doubt((4, 10))], FILES, 10) == {"f": [0]}
    assert unproved([in_doubt((0, 4)), in_doubt((0, 4), data=wrong), in_doubt((4, 10))], FILES, 10) == {"f": [0]}
