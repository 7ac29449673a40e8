"""Boxes in a tensor, what two of them share, and whether some of them make up the whole.

Bytes are row-major, as safetensors and a contiguous tensor have them. Everything here is arithmetic on integers.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from operator import add, sub
from typing import NamedTuple

from ckptlab.errors import FormatError
from ckptlab.format.strips import Strip

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

    @property
    def end(self) -> tuple[int, ...]:
        """Give the offset behind the last element, in each dim."""
        return tuple(map(add, self.offset, self.shape))

    def moved(self, by: Sequence[int]) -> "Box":
        """Give the box of the same shape that stands `by` farther in each dim."""
        return Box(tuple(at + step for at, step in zip(self.offset, by, strict=True)), self.shape)

    def intersect(self, other: "Box") -> "Box | None":
        """Give what both boxes hold, or `None` when they share no element."""
        offset = tuple(map(max, self.offset, other.offset))
        shape = tuple(map(sub, map(min, self.end, other.end), offset))
        return Box(offset, shape) if all(size > 0 for size in shape) else None


def whole(shape: Sequence[int]) -> Box:
    """Give the box that holds a whole tensor."""
    return Box((0,) * len(shape), tuple(shape))


def copy_strips(source: Box, target: Box, item_bytes: int, within: Box | None = None) -> Iterator[Strip]:
    """Say how to copy what two boxes of one tensor share, in the fewest runs of bytes; only what lies `within`, if given.

    A strip's `begin` counts from the source's first byte, its `local_begin` from the target's; in rising order.

    >>> list(copy_strips(Box((0, 0), (4, 6)), Box((2, 0), (2, 6)), item_bytes=1))
    [Strip(begin=12, local_begin=0, length=12, num_runs=1, step=0, local_step=0)]
    >>> list(copy_strips(Box((0, 0), (4, 6)), Box((2, 3), (2, 3)), item_bytes=1))
    [Strip(begin=15, local_begin=0, length=3, num_runs=2, step=6, local_step=3)]
    """
    shared = source.intersect(target)
    if shared is not None and within is not None:
        shared = shared.intersect(within)
    return iter(()) if shared is None else _strips(_merged(source, target, shared), item_bytes)


class _Dim(NamedTuple):
    """A dim of what is copied: how much of it, from which place in each box on, and how long it is there."""

    size: int
    source_at: int
    target_at: int
    source_size: int
    target_size: int


def _merged(source: Box, target: Box, shared: Box) -> list[_Dim]:
    """Describe the dims of what is shared; one that is copied whole is one with the dim before it, for its bytes follow."""
    dims = [_Dim(1, 0, 0, 1, 1)]
    each = zip(shared.offset, shared.shape, source.offset, source.shape, target.offset, target.shape, strict=True)
    for at, size, source_at, source_size, target_at, target_size in each:
        if size == source_size == target_size:
            dims[-1] = _Dim(*(number * size for number in dims[-1]))
        else:
            dims.append(_Dim(size, at - source_at, at - target_at, source_size, target_size))
    return dims[1:] if dims[0].size == 1 < len(dims) else dims


def _strips(dims: Sequence[_Dim], item_bytes: int) -> Iterator[Strip]:
    """The last dim makes up a run, the one before it a strip, and the others are looped over, lazily: they may be long."""
    inner = [(item_bytes, item_bytes)]
    for dim in reversed(dims):
        inner.insert(0, (inner[0][0] * dim.source_size, inner[0][1] * dim.target_size))
    strides = inner[1:]  # bytes from one place of the dim to the next, in source and target
    begins: Iterable[int] = (sum(dim.source_at * stride for dim, (stride, _) in zip(dims, strides, strict=True)),)
    locals_: Iterable[int] = (sum(dim.target_at * stride for dim, (_, stride) in zip(dims, strides, strict=True)),)
    for dim, (stride, local_stride) in zip(dims[:-2], strides[:-2], strict=True):
        begins, locals_ = _spread(begins, dim.size, stride), _spread(locals_, dim.size, local_stride)
    repeats = (dims[-2].size, *strides[-2]) if len(dims) > 1 else ()
    return (Strip(b, at, dims[-1].size * item_bytes, *repeats) for b, at in zip(begins, locals_, strict=False))


def byte_runs(shape: Sequence[int], box: Box, item_bytes: int) -> Iterator[tuple[int, int]]:
    """Say where the bytes of a box lie among the tensor's bytes: (begin, length), in rising order.

    >>> list(byte_runs((5, 4), Box((3, 0), (2, 4)), item_bytes=4))
    [(48, 32)]
    """
    strips = copy_strips(whole(shape), box, item_bytes)
    return ((begin, length) for strip in strips for begin, _, length in strip.runs())


def check_tiling(shape: Sequence[int], boxes: Sequence[Box]) -> None:
    """Refuse boxes that reach outside the tensor, overlap or leave a gap; an empty box holds nothing.

    How many boxes hold each element is known from their corners alone: in one dim a box counts +1 where it begins and -1 where
    it ends. [0, 3) and [3, 5) leave +1 at 0 and -1 at 5, as [0, 5) does; [0, 3) and [2, 5) leave +1 at 2 and -1 at 3 as well,
    so that from element 2 on there is a box too many. In more dims the signs multiply. So each box costs the same, however
    many there are.
    """
    for box in boxes:
        _check_inside(shape, box)
    everything = whole(shape)
    if list(boxes) == [everything] or everything.num_elements == 0:
        return
    cut = [dim for dim, size in enumerate(shape) if any(box.shape[dim] != size for box in boxes)]
    if len(cut) > MAX_CUT_DIMS:
        raise FormatError(f"a tensor of shape {tuple(shape)} is cut in {len(cut)} dims, expected at most {MAX_CUT_DIMS}")
    excess = _corners(boxes, cut)
    excess.subtract(_corners([everything], cut))
    wrong = min((corner for corner, count in excess.items() if count), default=None)
    if wrong is not None:
        at = [wrong[cut.index(dim)] if dim in cut else 0 for dim in range(len(shape))]
        raise FormatError(f"{excess[wrong] + 1} boxes hold element {at} of shape {tuple(shape)}, expected exactly one")


def _check_inside(shape: Sequence[int], box: Box) -> None:
    same_dims = len(box.offset) == len(box.shape) == len(shape)
    if not same_dims or not all(0 <= at <= end <= size for at, end, size in zip(box.offset, box.end, shape, strict=True)):
        raise FormatError(f"{box} reaches outside a tensor of shape {tuple(shape)}")


def _corners(boxes: Sequence[Box], dims: Sequence[int]) -> Counter[tuple[int, ...]]:
    signs = [math.prod(choice) for choice in product((1, -1), repeat=len(dims))]
    total: Counter[tuple[int, ...]] = Counter()
    for box in boxes:
        end = box.end
        sides = ((box.offset[dim], end[dim]) for dim in dims)
        for corner, sign in zip(product(*sides), signs, strict=True):
            total[corner] += sign
    return total


def _spread(begins: Iterable[int], size: int, stride: int) -> Iterable[int]:
    return chain.from_iterable(range(begin, begin + size * stride, stride) for begin in begins)
