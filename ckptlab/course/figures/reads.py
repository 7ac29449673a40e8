"""`reads`: which bytes each new rank reads of which old piece, when the ranks are others than those that wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import plotly.graph_objects as go

from ckptlab.course.figures import colours
from ckptlab.course.figures.holders import Boxes
from ckptlab.course.figures.picture import Picture, draw, table
from ckptlab.errors import UsageError
from ckptlab.format.boxes import Box, check_tiling, copy_strips, whole

NAMES = {1: ("element",), 2: ("row", "column")}  # of the dims, by how many there are
NOTHING = "-"
FILLS = tuple(fill for fill in colours.FILLS if fill != colours.GREY)  # of the pieces; grey is for what is added up
IN_ALL = len(FILLS)
LINE_HEIGHT, CELL_HEIGHT = 16, 44  # pixels
PLOT_PIXELS = 400  # letters side by side in all columns, times their size, at a width of 330 pixels


def reads(shape: Sequence[int], pieces: Boxes, wanted: Boxes, *, item_bytes: int = 4, title: str = "") -> Picture:
    """Draw what each new rank reads of each piece of a tensor: bytes, and in how many runs they lie in the piece.

    A column is a piece, a box that lies row after row in a file, in the colour of its own; a line is a new rank.

    Args:
        shape: the tensor's global shape.
        pieces: by who wrote it, a list of (global offset, shape); of equal boxes the first is read, empty ones are left out.
        wanted: for each new rank a list of (global offset, shape).
        item_bytes: bytes of one element.
        title: what the figure is called.

    Raises:
        FormatError: the pieces do not hold every element of the tensor just once.
        UsageError: a wanted box does not lie in the tensor, or `item_bytes` is no whole number of at least 1.

    >>> rows, columns = [[((0, 0), (1, 4))], [((1, 0), (1, 4))]], [[((0, 0), (2, 2))], [((0, 2), (2, 2))]]
    >>> print(reads((2, 4), rows, columns).text)
    What each rank reads: shape (2, 4)
                         piece 0: row 0  piece 1: row 1        in all
    rank 0: columns 0-1      8 B, 1 run      8 B, 1 run  16 B, 2 runs
    rank 1: columns 2-3      8 B, 1 run      8 B, 1 run  16 B, 2 runs
    """
    if item_bytes < 1 or item_bytes != int(item_bytes):
        raise UsageError(f"item_bytes={item_bytes}: expected the bytes of one element, a whole number of at least 1")
    plan = Plan.of(shape, pieces, wanted, int(item_bytes))
    title = title or f"What each rank reads: shape ({', '.join(map(str, shape))})"
    header = ["", *(": ".join(names) for names in plan.pieces), "in all"]
    rows = [[": ".join(names), *map(str, cells)] for names, cells in zip(plan.ranks, plan.cells, strict=True)]
    return Picture(figure=_figure(title, plan), text="\n".join([title, table([header, *rows])]))


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes, and the runs in which they lie."""

    num_bytes: int = 0
    num_runs: int = 0

    def __add__(self, other: Self) -> "Amount":
        return Amount(self.num_bytes + other.num_bytes, self.num_runs + other.num_runs)

    def __str__(self) -> str:
        return f"{self.num_bytes:,} B, {self.num_runs:,} run{'s' * (self.num_runs != 1)}" if self.num_runs else NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who reads what: pieces and ranks with their names, and what crosses, by rank and piece; the last column is the sum."""

    pieces: list[tuple[str, str]]
    ranks: list[tuple[str, str]]
    cells: list[list[Amount]]

    @classmethod
    def of(cls, shape: Sequence[int], pieces: Boxes, wanted: Boxes, item_bytes: int) -> Self:
        """Cross every wanted box with every piece."""
        written = list(dict.fromkeys(box for boxes in _read(pieces) for box in boxes if box.num_elements))
        check_tiling(shape, written)
        by_rank = _read(wanted)
        for rank, boxes in enumerate(by_rank):
            if outside := [box for box in boxes if not _lies_in(shape, box)]:
                raise UsageError(f"rank {rank}: {outside[0]} does not lie in a tensor of shape {tuple(shape)}")
        cells = [[_crossing(piece, boxes, item_bytes) for piece in written] for boxes in by_rank]
        return cls(
            pieces=[(f"piece {number}", _say(shape, [box])) for number, box in enumerate(written)],
            ranks=[(f"rank {rank}", _say(shape, boxes)) for rank, boxes in enumerate(by_rank)],
            cells=[[*row, sum(row, Amount())] for row in cells],
        )


def _read(boxes_by_rank: Boxes) -> list[list[Box]]:
    return [[Box(tuple(map(int, at)), tuple(map(int, size))) for at, size in boxes] for boxes in boxes_by_rank]


def _lies_in(shape: Sequence[int], box: Box) -> bool:
    """Whether a box has the tensor's dims and holds nothing beyond it; of an empty one the place does not matter."""
    has_its_dims = len(box.offset) == len(box.shape) == len(shape)
    return has_its_dims and (box.num_elements == 0 or box.intersect(whole(shape)) == box)


def _crossing(piece: Box, boxes: Sequence[Box], item_bytes: int) -> Amount:
    """Say what a rank reads of a piece; its runs are those of the piece, which lies row after row."""
    shared = [box for box in map(piece.intersect, boxes) if box is not None]
    num_runs = sum(strip.num_runs for box in shared for strip in copy_strips(piece, box, item_bytes))
    return Amount(sum(box.num_elements for box in shared) * item_bytes, num_runs)


def _say(shape: Sequence[int], boxes: Sequence[Box]) -> str:
    """Name what boxes hold by the dims in which they are not whole."""
    return "; ".join(_say_box(shape, box) for box in boxes if box.num_elements) or "nothing"


def _say_box(shape: Sequence[int], box: Box) -> str:
    names = NAMES.get(len(shape), [f"dim {dim}, place" for dim in range(len(shape))])
    dims = zip(names, box.offset, box.end, shape, strict=True)
    return ", ".join(_span(name, at, end - 1) for name, at, end, size in dims if end - at != size) or "all"


def _span(name: str, first: int, last: int) -> str:
    return f"{name} {first}" if first == last else f"{name}s {first}-{last}"


def _figure(title: str, plan: Plan) -> go.Figure:
    heads = [_lines(*names) for names in (*plan.pieces, ("in all", ""))]
    labels = [[str(cell).split(", ") if cell.num_runs else [] for cell in row] for row in plan.cells]
    cells = go.Heatmap(
        x=list(range(len(heads))),
        y=list(range(len(plan.ranks))),
        z=[[_fill(cell, at, len(plan.pieces)) for at, cell in enumerate(row)] for row in plan.cells],
        zmin=-0.5,
        zmax=IN_ALL + 0.5,
        colorscale=[
            [(number + side) / (IN_ALL + 1), fill] for number, fill in enumerate((*FILLS, colours.GREY)) for side in (0, 1)
        ],
        text=[["<br>".join(lines) for lines in row] for row in labels],
        texttemplate="%{text}",
        textfont={"color": colours.LABEL, "size": _size([lines for row in labels for lines in row], len(heads))},
        hoverinfo="text",
        showscale=False,
        xgap=2,
        ygap=2,
    )
    xaxis = {**_ticks(heads, _size(heads, len(heads))), "side": "top"}
    yaxis = {**_ticks([_lines(*names) for names in plan.ranks], 11), "range": [len(plan.ranks) - 0.5, -0.5]}
    above = LINE_HEIGHT * max(map(len, heads)) + 8
    return draw([cells], title, CELL_HEIGHT * len(plan.ranks), above=above, xaxis=xaxis, yaxis=yaxis)


def _lines(name: str, box: str) -> list[str]:
    return [name, *box.split(", ")]


def _size(texts: Sequence[Sequence[str]], num_columns: int) -> int:
    """Give the size in which the longest line fits into a column of a narrow page."""
    longest = max((len(line) for lines in texts for line in lines), default=1)
    return max(9, min(13, PLOT_PIXELS // (longest * num_columns)))


def _fill(cell: Amount, at: int, num_pieces: int) -> int | None:
    """Give the number of a cell's fill; what is not read has none."""
    return (IN_ALL if at == num_pieces else at % len(FILLS)) if cell.num_runs else None


def _ticks(names: Sequence[Sequence[str]], size: int) -> dict[str, object]:
    texts = ["<br>".join(lines) for lines in names]
    return {
        "tickvals": list(range(len(names))),
        "ticktext": texts,
        "tickfont": {"size": size},
        "tickangle": 0,
        "showgrid": False,
    }
