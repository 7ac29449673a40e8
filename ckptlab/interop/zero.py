"""Where a parameter's elements lie among the flat partitions of ZeRO's ranks: arithmetic alone.

Each rank has a flat tensor for each group of parameters. Stages 1 and 2 put a group's parameters one after another and cut
the whole into one run for each rank; stage 3 cuts each parameter into equal parts, one for each rank.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckptlab.errors import LoadError

Shapes = Mapping[str, tuple[int, ...]]
"""The parameters of a group, in the order in which they lie."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of a parameter: elements `begin` to `begin + length` of what `rank` has of the group."""

    rank: int
    begin: int
    length: int


Pieces = Mapping[str, tuple[Piece, ...]]
"""Each parameter's pieces; their elements, one after another, are the parameter, row by row."""


def in_runs(shapes: Shapes, gaps: Sequence[int], lengths: Sequence[int]) -> Pieces:
    """Lay out a group under stage 1 or 2, of whose run each rank has as many elements as `lengths` says.

    With shapes {"a": (3,), "b": (2, 2)}, no gaps and lengths (4, 4): a is 0-3 of rank 0; b is 3-4 of rank 0 and 0-3 of rank 1.

    Args:
        shapes: of the group's parameters.
        gaps: elements of padding after each of them.
        lengths: may hold padding at the very end, less than two elements for each rank.

    Raises:
        LoadError: the ranks' runs are not as long as the parameters together.
    """
    begins, end = {}, 0
    for (name, shape), gap in zip(shapes.items(), gaps, strict=True):
        begins[name], end = end, end + math.prod(shape) + gap
    found = sum(lengths)
    if not 0 <= found - end < 2 * len(lengths):
        raise LoadError(f"the ranks have {list(lengths)} elements; the parameters {', '.join(shapes)} need {end} in all")
    return {name: tuple(_cut(begin, begin + math.prod(shapes[name]), lengths)) for name, begin in begins.items()}


def in_parts(shapes: Shapes, lengths: Sequence[int]) -> Pieces:
    """Lay out a group under stage 3: a parameter of 7 elements on 3 ranks is 3, 3 and 1 of them, and 2 of padding.

    Raises:
        LoadError: a rank has not as many elements as its parts of the parameters together.
    """
    pieces, begin, num_ranks = {}, 0, len(lengths)
    for name, shape in shapes.items():
        size = math.prod(shape)
        part = -(-size // num_ranks)
        counts = (max(0, min(part, size - rank * part)) for rank in range(num_ranks))
        pieces[name] = tuple(Piece(rank, begin, count) for rank, count in enumerate(counts) if count)
        begin += part
    if set(lengths) != {begin}:
        raise LoadError(f"the ranks have {list(lengths)} elements; the parameters {', '.join(shapes)} need {begin} on each")
    return pieces


def _cut(begin: int, end: int, lengths: Sequence[int]) -> Iterator[Piece]:
    """Cut a run of the whole into what each rank has of it."""
    rank_begin = 0
    for rank, length in enumerate(lengths):
        first, last = max(begin, rank_begin), min(end, rank_begin + length)
        if first < last:
            yield Piece(rank, first - rank_begin, last - first)
        rank_begin += length
