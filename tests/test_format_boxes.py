"""Boxes against NumPy's own slicing."""

import doctest
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckptlab.errors import FormatError
from ckptlab.format import boxes, strips
from ckptlab.format.boxes import Box, byte_runs, check_tiling, copy_strips, whole

SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)


@st.composite
def box_in(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    ends = [sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in shape]
    return Box(tuple(begin for begin, _ in ends), tuple(end - begin for begin, end in ends))


@st.composite
def partition(draw: st.DrawFn, box: Box, cuts: int = 5) -> list[Box]:
    """Cut a box in two along any dim, again and again, as far as `cuts` goes."""
    cuttable = [dim for dim, size in enumerate(box.shape) if size > 1]
    if not cuts or not cuttable or draw(st.booleans()):
        return [box]
    dim = draw(st.sampled_from(cuttable))
    at = draw(st.integers(1, box.shape[dim] - 1))
    low, high = list(box.shape), list(box.shape)
    low[dim], high[dim] = at, box.shape[dim] - at
    offset = list(box.offset)
    offset[dim] += at
    halves = Box(box.offset, tuple(low)), Box(tuple(offset), tuple(high))
    return [part for half in halves for part in draw(partition(half, cuts - 1))]


def cut_out(array: Any, box: Box) -> Any:
    return array[(*(slice(at, at + size) for at, size in zip(box.offset, box.shape, strict=True)), ...)]


def times_held(shape: tuple[int, ...], tiles: list[Box]) -> Any:
    held = np.zeros(shape, int)
    for tile in tiles:
        cut_out(held, tile)[...] += 1
    return held


@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), box_in(shape), box_in(shape))))
@example(((4, 6), Box((0, 2), (4, 2)), whole((4, 6))))
@example(((4, 6), whole((4, 6)), Box((0, 2), (4, 2))))
def test_copy_strips_copy_what_two_boxes_share_and_nothing_else(case: tuple[tuple[int, ...], Box, Box]) -> None:
    shape, source, target = case
    tensor = np.arange(np.prod(shape, dtype=int), dtype="<i4").reshape(shape)
    source_bytes, target_bytes = (
        cut_out(tensor, source).tobytes(),
        bytearray(cut_out(tensor, target).size * b"\xff\xff\xff\xff"),
    )
    runs = [run for strip in copy_strips(source, target, 4) for run in strip.runs()]
    for source_begin, target_begin, length in runs:
        target_bytes[target_begin : target_begin + length] = source_bytes[source_begin : source_begin + length]
    expected = np.full(shape, -1, "<i4")
    cut_out(expected, source)[...] = cut_out(tensor, source)
    assert target_bytes == cut_out(expected, target).tobytes()
    assert not any(a + n == c and b + n == d for (a, b, n), (c, d, _) in pairwise(runs)), "runs are as long as can be"
    assert runs == sorted(runs, key=lambda run: run[1])


@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), box_in(shape))))
def test_byte_runs_read_a_box_out_of_the_bytes_of_the_tensor(case: tuple[tuple[int, ...], Box]) -> None:
    shape, box = case
    tensor = np.arange(np.prod(shape, dtype=int), dtype="<i2").reshape(shape)
    data = tensor.tobytes()
    assert (
        b"".join(data[begin : begin + length] for begin, length in byte_runs(shape, box, 2)) == cut_out(tensor, box).tobytes()
    )


def test_a_box_of_rows_is_one_run_and_a_box_of_columns_one_run_a_row_even_of_a_billion_rows() -> None:
    assert list(byte_runs((8, 6), Box((3, 0), (2, 6)), 4)) == [(72, 48)]
    assert list(byte_runs((3, 6), Box((0, 2), (3, 1)), 4)) == [(8, 4), (32, 4), (56, 4)]
    assert next(iter(byte_runs((10**9, 10**9, 6), Box((0, 0, 2), (10**9, 10**9, 1)), 4))) == (8, 4)


@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), partition(whole(shape)), box_in(shape), st.randoms())))
def test_a_tiling_is_accepted_exactly_when_every_element_is_held_once(case: Any) -> None:
    shape, tiles, other, random = case
    random.shuffle(tiles)
    check_tiling(shape, tiles)
    for wrong in ([*tiles, other], tiles[1:], [other, *tiles[1:]]):
        if (times_held(shape, wrong) == 1).all():
            check_tiling(shape, wrong)
        else:
            with pytest.raises(FormatError, match="expected exactly one"):
                check_tiling(shape, wrong)


@pytest.mark.parametrize(
    ("tiles", "message"),
    [
        ([Box((0, 0), (2, 4)), Box((3, 0), (2, 4))], r"^0 boxes hold element \[2, 0\]"),
        ([Box((0, 0), (5, 2)), Box((0, 1), (5, 3))], r"^2 boxes hold element \[0, 1\]"),
        ([Box((0, 0), (5, 4)), Box((1, 1), (2, 2))], r"^2 boxes hold element \[1, 1\]"),
        ([], r"^0 boxes hold element \[0, 0\]"),
        ([Box((0, 0), (6, 4))], "reaches outside"),
        ([Box((-1, 0), (5, 4))], "reaches outside"),
        ([Box((2, 0), (-1, 4))], "reaches outside"),
        ([Box((0,), (5,))], "reaches outside"),
        ([Box((0, 0, 0), (5, 4))], "reaches outside"),
        ([Box((0, 0), (5,))], "reaches outside"),
        ([Box((6, 0), (0, 4)), Box((0, 0), (5, 4))], "reaches outside"),
    ],
)
def test_a_wrong_tiling_is_refused_with_the_place(tiles: list[Box], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        check_tiling((5, 4), tiles)


def test_a_pinwheel_that_no_straight_cut_divides_is_a_tiling() -> None:
    check_tiling(
        (3, 3), [Box((0, 0), (1, 2)), Box((0, 2), (2, 1)), Box((2, 1), (1, 2)), Box((1, 0), (2, 1)), Box((1, 1), (1, 1))]
    )


def test_a_tiling_by_a_hundred_thousand_boxes_is_checked_at_once() -> None:
    check_tiling((10**5, 4), [Box((row, 0), (1, 4)) for row in range(10**5)])
    check_tiling((300, 300, 2), [Box((row, column, 0), (1, 1, 2)) for row in range(300) for column in range(300)])


def test_a_tensor_cut_in_more_dims_than_a_mesh_has_is_refused_instead_of_taking_forever() -> None:
    halves = [Box((0,) * 40, (1,) * 40), Box((1,) * 40, (1,) * 40)]
    with pytest.raises(FormatError, match="cut in 40 dims"):
        check_tiling((2,) * 40, halves)


def test_the_examples_in_the_docstrings_are_true() -> None:
    for module in (boxes, strips):
        assert doctest.testmod(module).attempted > 0
        assert doctest.testmod(module).failed == 0
