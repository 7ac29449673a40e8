"""Boxes in a tensor, what two of them share, and whether some of them make up the whole.

Bytes are row-major, as safetensors and a contiguous tensor have them. Everything here is arithmetic on integers.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product, repeat

from ckptlab.errors import FormatError

MAX_CUT_DIMS = 4  # a mesh cuts a tensor in two or three dims; each more doubles the work on a hostile manifest


@dataclass(frozen=True, slots=True)
class Box:
    """Where in a tensor: the global offset of the first element, and the shape; both as long as the tensor has dims."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """Count the elements; a box without dims holds one."""
        return math.prod(self.shape)

    def intersect(self, other: "Box") -> "Box | None":
        """Give what both boxes hold, or `None` when they share no element."""
        begins = tuple(map(max, self.offset, other.offset))
        shape = tuple(
            min(a + n, b + m) - begin
            for a, n, b, m, begin in zip(self.offset, self.shape, other.offset, other.shape, begins, strict=True)
        )
        return Box(begins, shape) if all(size > 0 for size in shape) else None


def whole(shape: Sequence[int]) -> Box:
    """Give the box that holds a whole tensor."""
    return Box((0,) * len(shape), tuple(shape))


def copy_runs(source: Box, target: Box, item_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Say how to copy what two boxes of one tensor share, in the fewest runs of bytes.

    Returns:
        (begin in the source's own bytes, begin in the target's own bytes, length) of each run, in rising order.

    >>> list(copy_runs(Box((0, 0), (4, 6)), Box((2, 0), (2, 6)), item_bytes=1))
    [(12, 0, 12)]
    >>> list(copy_runs(Box((0, 0), (4, 6)), Box((2, 3), (2, 3)), item_bytes=1))
    [(15, 0, 3), (21, 3, 3)]
    """
    shared = source.intersect(target)
    if shared is None:
        return iter(())
    loops = max(len(shared.shape) - 1, 0)  # the leading dims to loop over: a run takes in all dims after them
    while loops and shared.shape[loops] == source.shape[loops] == target.shape[loops]:
        loops -= 1
    length = math.prod(shared.shape[loops:]) * item_bytes
    return zip(
        _begins(source, shared, loops, item_bytes), _begins(target, shared, loops, item_bytes), repeat(length), strict=False
    )


def byte_runs(shape: Sequence[int], box: Box, item_bytes: int) -> Iterator[tuple[int, int]]:
    """Say where the bytes of a box lie among the tensor's bytes: (begin, length), in rising order.

    >>> list(byte_runs((5, 4), Box((3, 0), (2, 4)), item_bytes=4))
    [(48, 32)]
    """
    return ((begin, length) for begin, _, length in copy_runs(whole(shape), box, item_bytes))


def check_tiling(shape: Sequence[int], boxes: Sequence[Box]) -> None:
    """Refuse boxes that reach outside the tensor, overlap or leave a gap; empty boxes are ignored.

    How often each element is covered is known from the boxes' corners alone, with alternating signs (inclusion and
    exclusion). In a tiling they cancel to those of the whole, and the first corner that is left over is where it fails.
    """
    everything = whole(shape)
    for box in boxes:
        same_dims = len(box.offset) == len(box.shape) == len(shape)
        if not same_dims or any(
            not 0 <= at <= at + size <= end for at, size, end in zip(box.offset, box.shape, shape, strict=True)
        ):
            raise FormatError(f"{box} reaches outside a tensor of shape {tuple(shape)}")
    filled = [box for box in boxes if box.num_elements]
    if filled == [everything] or everything.num_elements == 0:
        return
    cut = [dim for dim, size in enumerate(shape) if any(box.shape[dim] != size for box in filled)]
    if len(cut) > MAX_CUT_DIMS:
        raise FormatError(f"a tensor of shape {tuple(shape)} is cut in {len(cut)} dims, expected at most {MAX_CUT_DIMS}")
    excess = _corners(filled, cut)
    excess.subtract(_corners([everything], cut))
    wrong = [corner for corner, count in excess.items() if count]
    if wrong:
        first = dict(zip(cut, min(wrong), strict=True))
        at = [first.get(dim, 0) for dim in range(len(shape))]
        raise FormatError(f"{excess[min(wrong)] + 1} boxes hold element {at} of shape {tuple(shape)}, expected exactly one")


def _corners(boxes: Sequence[Box], dims: Sequence[int]) -> Counter[tuple[int, ...]]:
    signs = [math.prod(choice) for choice in product((1, -1), repeat=len(dims))]
    total: Counter[tuple[int, ...]] = Counter()
    for box in boxes:
        ends = ((box.offset[dim], box.offset[dim] + box.shape[dim]) for dim in dims)
        for corner, sign in zip(product(*ends), signs, strict=True):
            total[corner] += sign
    return total


def _begins(box: Box, shared: Box, loops: int, item_bytes: int) -> Iterable[int]:
    """Give where each run begins in the box's own bytes; lazily, for a column box may have millions of rows."""
    strides = [math.prod(box.shape[dim + 1 :]) * item_bytes for dim in range(len(box.shape))]
    begins: Iterable[int] = (
        sum((at - start) * stride for at, start, stride in zip(shared.offset, box.offset, strides, strict=True)),
    )
    for size, stride in zip(shared.shape[:loops], strides, strict=False):
        begins = _spread(begins, size, stride)
    return begins


def _spread(begins: Iterable[int], size: int, stride: int) -> Iterable[int]:
    return chain.from_iterable(range(begin, begin + size * stride, stride) for begin in begins)
