"""Who holds what of a tensor: a grid of its elements, or of its boxes where there are too many, and the same in words."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Self

from ckptlab.errors import UsageError
from ckptlab.format.boxes import Box, whole
from ckptlab.ranks.verdict import name_ranks

MOST_ELEMENTS = 16  # in a dim, to be seen one by one

Boxes = Sequence[Iterable[tuple[Sequence[int], Sequence[int]]]]  # by rank: (global offset, shape) of each box
Ranks = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """Cells between `row_edges` and `column_edges`, and the ranks that hold each; a tensor of fewer dims is one row."""

    num_dims: int
    boxes: list[list[Box]]  # by rank, as matrices, none of them empty
    one_by_one: bool
    row_edges: list[int]
    column_edges: list[int]
    cells: list[list[Ranks]]

    @classmethod
    def find(cls, shape: Sequence[int], boxes_by_rank: Boxes) -> Self:
        """Find the holders of each cell; raise `UsageError` for a box that does not lie in the tensor."""
        ranks = enumerate(boxes_by_rank)
        boxes = [[box for pair in pairs if (box := _read(rank, shape, *pair)).num_elements] for rank, pairs in ranks]
        total = _as_matrix(whole(shape))
        one_by_one = max(total.shape) <= MOST_ELEMENTS
        rows, columns = (
            list(range(size + 1)) if one_by_one else _cuts(dim, chain([total], *boxes)) for dim, size in enumerate(total.shape)
        )
        cells = [[_holders(boxes, row, column) for column in columns[:-1]] for row in rows[:-1]]
        return cls(num_dims=len(shape), boxes=boxes, one_by_one=one_by_one, row_edges=rows, column_edges=columns, cells=cells)

    def lines(self) -> Iterator[str]:
        """Say what each rank holds; ranks that hold the same share a line."""
        ranks_by_text: dict[str, list[int]] = {}
        for rank, boxes in enumerate(self.boxes):
            ranks_by_text.setdefault("; ".join(map(self._say, boxes)) or "nothing", []).append(rank)
        for text, ranks in ranks_by_text.items():
            yield f"{name_ranks(ranks)}: {text}"
        if missing := self._num_missing():
            yield f"no rank: {_count(missing)}"

    def _say(self, box: Box) -> str:
        names = ("row", "column") if self.num_dims == 2 else ("element",)
        dims = list(zip(box.offset, box.end, strict=True))[-len(names) :]
        spans = [
            f"{name} {at}" if end == at + 1 else f"{name}s {at}-{end - 1}" for name, (at, end) in zip(names, dims, strict=True)
        ]
        return f"{', '.join(spans)} ({_count(box.num_elements)})"

    def _num_missing(self) -> int:
        heights, widths = ([end - at for at, end in pairwise(edges)] for edges in (self.row_edges, self.column_edges))
        return sum(
            height * width
            for height, row in zip(heights, self.cells, strict=True)
            for width, ranks in zip(widths, row, strict=True)
            if not ranks
        )


def _read(rank: int, shape: Sequence[int], offset: Sequence[int], size: Sequence[int]) -> Box:
    box = Box(tuple(map(int, offset)), tuple(map(int, size)))
    if not len(box.offset) == len(box.shape) == len(shape) <= 2:
        raise UsageError(f"rank {rank}: {box} of a tensor of shape {tuple(shape)}: expected as many dims, and at most 2")
    if not all(0 <= at <= end <= most for at, end, most in zip(box.offset, box.end, shape, strict=True)):
        raise UsageError(f"rank {rank}: {box} reaches outside a tensor of shape {tuple(shape)}")
    return _as_matrix(box)


def _as_matrix(box: Box) -> Box:
    missing = 2 - len(box.shape)
    return Box((0,) * missing + box.offset, (1,) * missing + box.shape)


def _cuts(dim: int, boxes: Iterable[Box]) -> list[int]:
    return sorted({at for box in boxes for at in (box.offset[dim], box.end[dim])})


def _holders(boxes: Sequence[Sequence[Box]], row: int, column: int) -> Ranks:
    corner = Box((row, column), (1, 1))
    return tuple(rank for rank, held in enumerate(boxes) if any(box.intersect(corner) for box in held))


def _count(num_elements: int) -> str:
    return f"{num_elements:,} element{'s' * (num_elements != 1)}"
