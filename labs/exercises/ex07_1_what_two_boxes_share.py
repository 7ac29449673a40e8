"""What two boxes share

A box is `(offset, shape)`: the place of its first element in the tensor, and how many elements it has in each dim. Return the
box of all elements that both boxes hold, or `None` when they share no element. A tensor may have any number of dims, also none.
"""

import random
from collections.abc import Callable, Iterator

import torch

from ckptlab.course.exercise import Case

MINUTES = 5
WORLD_SIZES = (1,)
IN_KERNEL = True
HINTS = (
    "First in one dim. Elements 2-5 and elements 4-9 share 4-5: which of the four numbers give the first and the last?",
    "In each dim: it begins at the greater of the two begins, and ends at the smaller of the two ends, `offset + shape`.",
    "The size in a dim is that end less that begin. When it is 0 or less in any dim, they share nothing: `None`.",
)

Pair = tuple[tuple[int, ...], tuple[int, ...]]


def intersect(one: Pair, other: Pair) -> Pair | None:
    """Return `(offset, shape)` of what both boxes hold, or None."""
    raise NotImplementedError


def solution(one: Pair, other: Pair) -> Pair | None:
    offset, shape = [], []
    for at, size, other_at, other_size in zip(*one, *other, strict=True):
        begin, end = max(at, other_at), min(at + size, other_at + other_size)
        offset.append(begin)
        shape.append(end - begin)
    return (tuple(offset), tuple(shape)) if all(size > 0 for size in shape) else None


def _spans(one: Pair, other: Pair) -> list[tuple[int, int]]:
    """Give the greater begin and the smaller end in each dim."""
    each = zip(*one, *other, strict=True)
    return [(max(at, other_at), min(at + size, other_at + other_size)) for at, size, other_at, other_size in each]


def wrong_touching(one: Pair, other: Pair) -> Pair | None:
    """Boxes that only touch share no element: where a size is 0 there is nothing to read, and the answer is None."""
    spans = _spans(one, other)
    box = tuple(begin for begin, _ in spans), tuple(end - begin for begin, end in spans)
    return box if all(size >= 0 for size in box[1]) else None


def wrong_one_dim_is_enough(one: Pair, other: Pair) -> Pair | None:
    """Two boxes share something only when they overlap in every dim: the same rows of other columns are nothing in common."""
    spans = _spans(one, other)
    box = tuple(begin for begin, _ in spans), tuple(end - begin for begin, end in spans)
    return box if not spans or any(size > 0 for size in box[1]) else None


def wrong_smaller_shape(one: Pair, other: Pair) -> Pair | None:
    """The smaller of the two sizes is too much where a box sticks out: subtract the begin from the end that comes first."""
    spans = _spans(one, other)
    sizes = tuple(min(size, other_size) for size, other_size in zip(one[1], other[1], strict=True))
    return (tuple(begin for begin, _ in spans), sizes) if all(begin < end for begin, end in spans) else None


def wrong_end_for_shape(one: Pair, other: Pair) -> Pair | None:
    """You give where it ends. A box is its offset and its shape: subtract the offset."""
    spans = _spans(one, other)
    box = tuple(begin for begin, _ in spans), tuple(end for _, end in spans)
    return box if all(begin < end for begin, end in spans) else None


def check(answer: Callable[[Pair, Pair], Pair | None], rank: int, world_size: int) -> Iterator[Case]:
    drawn = random.Random("7.1")
    for num_dims in (1, 1, 2, 2, 2, 3, 3, 0):
        shape = [drawn.randint(4, 9) for _ in range(num_dims)]
        one = _draw(drawn, shape)
        touching = tuple(map(sum, zip(*one, strict=True))), tuple(2 for _ in shape)
        aside = (one[0][:-1] + touching[0][-1:], one[1][:-1] + touching[1][-1:])
        for other in (_draw(drawn, shape), touching, aside, one):
            found = answer(one, other)
            yield Case(_as_tuples(found), _shared(one, other), where=f"boxes {one} and {other}")


def _draw(drawn: random.Random, shape: list[int]) -> Pair:
    offset = tuple(drawn.randrange(size - 1) for size in shape)
    return offset, tuple(drawn.randint(1, size - at) for at, size in zip(offset, shape, strict=True))


def _shared(one: Pair, other: Pair) -> Pair | None:
    """Read it off two masks: which places hold both marks."""
    marks = torch.zeros([12] * len(one[0]), dtype=torch.int8)
    for box in (one, other):
        marks[tuple(slice(at, at + size) for at, size in zip(*box, strict=True))] += 1
    places = (marks == 2).nonzero()
    if not len(places):
        return None
    first, last = places.amin(0), places.amax(0)
    return tuple(first.tolist()), tuple((last - first + 1).tolist())


def _as_tuples(found: object) -> object:
    """Lists are as good as tuples."""
    is_pair = isinstance(found, list | tuple) and len(found) == 2 and all(isinstance(part, list | tuple) for part in found)
    return tuple(map(tuple, found)) if is_pair else found  # type: ignore[call-overload]  # not narrowed by a name
