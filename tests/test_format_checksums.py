"""Block sums against zlib."""

import random
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptlab.errors import FormatError
from ckptlab.format.checksums import BLOCK_BYTES, FileSums, block_ranges, file_sum
from ckptlab.format.strips import Strip, cut_at_blocks, rows


def zlib_sums(data: bytes, block_bytes: int) -> list[int]:
    return [zlib.crc32(data[begin : begin + block_bytes]) for begin in range(0, len(data), block_bytes)]


@given(st.binary(max_size=200), st.integers(1, 70), st.integers(1, 4), st.randoms(use_true_random=False))
def test_sums_of_writers_that_share_blocks_are_the_crc_of_the_finished_file(
    data: bytes, block_bytes: int, num_writers: int, order: random.Random
) -> None:
    cuts = sorted({0, len(data), *(order.randint(0, len(data)) for _ in range(8))})
    runs = list(pairwise(cuts))
    order.shuffle(runs)
    writers = [FileSums(len(data), block_bytes) for _ in range(num_writers)]
    for begin, end in runs:
        order.choice(writers).add(begin, memoryview(data)[begin:end])
    total = FileSums(len(data), block_bytes)
    for writer in writers:
        total.merge(FileSums.from_json(len(data), block_bytes, writer.to_json()))
    assert total.finish() == zlib_sums(data, block_bytes)


@given(st.binary(max_size=200), st.integers(1, 70))
def test_the_sums_of_all_blocks_combine_to_the_crc_of_the_file(data: bytes, block_bytes: int) -> None:
    assert file_sum(zlib_sums(data, block_bytes), len(data), block_bytes) == zlib.crc32(data)


@given(st.binary(max_size=200), st.integers(1, 9), st.integers(1, 200), st.integers(1, 70))
def test_rows_are_summed_at_once_however_far_they_lie_apart(data: bytes, length: int, step: int, block_bytes: int) -> None:
    step = max(step, length)
    num_runs = 1 + (len(data) - length) // step if len(data) >= length else 0
    sums = FileSums(len(data), block_bytes)
    for strip in cut_at_blocks(Strip(0, 0, length, num_runs, step), block_bytes):
        cut = rows(data, strip.begin, strip.length, strip.num_runs, strip.step)
        sums.add_rows(strip.begin, strip.step, cut)
    covered = [number * step for number in range(num_runs)] + [len(data)]
    sums.add(0, data[: covered[0]])
    for begin, end in pairwise(covered):  # what lies between the rows
        sums.add(begin + length, data[begin + length : end])
    assert sums.finish() == zlib_sums(data, block_bytes)


def test_sums_of_real_blocks_are_those_of_zlib() -> None:
    data = random.Random(0).randbytes(2 * BLOCK_BYTES + 5)
    sums = FileSums(len(data), BLOCK_BYTES)
    sums.add(0, data)
    assert sums.finish() == zlib_sums(data, BLOCK_BYTES)


def test_a_run_that_is_missing_or_written_twice_is_told_with_its_block() -> None:
    sums = FileSums(100, 40)
    sums.add(0, bytes(85))
    with pytest.raises(FormatError, match=r"block 2 \(bytes 80-100\): 5 of 20 bytes written, too few"):
        sums.finish()
    sums.add(85, bytes(15))
    assert sums.finish() == zlib_sums(bytes(100), 40)
    sums.add(41, bytes(1))
    with pytest.raises(FormatError, match=r"block 1 \(bytes 40-80\): 41 of 40 bytes written, too many"):
        sums.finish()


def test_only_blocks_that_were_touched_are_sent() -> None:
    sums = FileSums(10**12, BLOCK_BYTES)
    sums.add(2 * BLOCK_BYTES, b"abc")
    assert [*sums.to_json()] == ["2"]
    assert sums.to_json()["2"][1] == 3


@pytest.mark.parametrize(("begin", "data"), [(-1, b"a"), (10, b"a"), (0, bytes(11)), (0, memoryview(bytes(8)).cast("i"))])
def test_bytes_outside_the_file_and_items_that_are_not_bytes_are_refused(begin: int, data: bytes | memoryview) -> None:
    with pytest.raises(FormatError, match="cannot sum"):
        FileSums(10, 4).add(begin, data)


def test_sums_of_files_of_different_sizes_do_not_merge() -> None:
    with pytest.raises(FormatError, match="different files"):
        FileSums(10, 4).merge(FileSums(11, 4))


def test_blocks_end_at_multiples_or_at_the_end_of_the_file() -> None:
    assert block_ranges(10, 4) == [(0, 4), (4, 8), (8, 10)]
    assert block_ranges(8, 4) == [(0, 4), (4, 8)]
    assert block_ranges(0, 4) == []
