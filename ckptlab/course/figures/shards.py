"""`shards`: a tensor, coloured and labelled by the ranks that hold its elements."""

import math
import textwrap
from collections.abc import Sequence
from itertools import pairwise

import plotly.graph_objects as go

from ckptlab.course.figures import colours
from ckptlab.course.figures.holders import Boxes, Holders, Ranks
from ckptlab.course.figures.picture import Picture, draw, table
from ckptlab.ranks.verdict import in_runs

MOST_TICKS = 8
NOBODY = "-"
PLOT_LETTERS = 48  # that stand side by side in the plot at a width of 400 pixels
AXIS_HEIGHT, LEAST_HEIGHT, MOST_HEIGHT = 46, 320, 1200  # pixels


def shards(shape: Sequence[int], boxes_by_rank: Boxes, title: str = "") -> Picture:
    """Draw which ranks hold which elements of a tensor with at most two dims.

    A colour is a set of ranks, and its label names them: "0-3" where ranks 0 to 3 hold the same. Up to 16 x 16 elements
    are drawn one by one, more as boxes. What no rank holds stays empty.

    Args:
        shape: the tensor's global shape.
        boxes_by_rank: for each rank a list of (global offset, shape); empty boxes hold nothing.
        title: what the figure is called.

    Raises:
        UsageError: a box does not lie in the tensor.

    >>> print(shards((3, 2), [[((0, 0), (2, 2))], [((2, 0), (1, 2))]]).text)
    A tensor of shape (3, 2), by rank
    0  0
    0  0
    1  1
    rank 0: rows 0-1, columns 0-1 (4 elements)
    rank 1: row 2, columns 0-1 (2 elements)
    """
    holders = Holders.find(shape, boxes_by_rank)
    title = title or f"A tensor of shape ({', '.join(map(str, shape))}), by rank"
    grid = [[in_runs(ranks, ",") or NOBODY for ranks in row] for row in holders.cells] if holders.one_by_one else []
    text = "\n".join(filter(None, (title, table(grid), *holders.lines())))
    return Picture(figure=_figure(title, holders), text=text)


def _figure(title: str, holders: Holders) -> go.Figure:
    sets = sorted({ranks for row in holders.cells for ranks in row if ranks})
    fills = {ranks: number % len(colours.FILLS) for number, ranks in enumerate(sets)}
    num_columns = len(holders.column_edges) - 1
    labels = {ranks: _label(ranks, num_columns, holders.one_by_one) for ranks in sets}
    cells = go.Heatmap(
        x=holders.column_edges,
        y=holders.row_edges,
        z=[[fills.get(ranks) for ranks in row] for row in holders.cells],
        zmin=-0.5,
        zmax=len(colours.FILLS) - 0.5,
        colorscale=_steps(),
        text=[[labels.get(ranks, "") for ranks in row] for row in holders.cells],
        texttemplate="%{text}",
        textfont={"color": colours.LABEL, "size": 11 if num_columns > 11 else 13},
        hovertemplate="held by %{text}<extra></extra>",
        showscale=False,
        xgap=1,
        ygap=1,
    )
    num_lines = max((label.count("<br>") + 1 for label in labels.values()), default=1)
    xaxis = _axis("column" if holders.num_dims == 2 else "element", holders.column_edges, holders.one_by_one)
    yaxis = _axis("row", holders.row_edges, holders.one_by_one) | {"visible": holders.num_dims == 2}
    yaxis["range"] = [holders.row_edges[-1], 0]
    return draw([cells], title, _height(holders, num_lines), below=AXIS_HEIGHT, xaxis=xaxis, yaxis=yaxis)


def _height(holders: Holders, num_lines: int) -> int:
    """Give each row of labels its height, as far as a page goes."""
    if holders.one_by_one:
        return max(40, (14 * num_lines + 12) * len(holders.cells))
    lowest = min((end - begin for begin, end in pairwise(holders.row_edges)), default=1)
    return min(max(LEAST_HEIGHT, 18 * num_lines * holders.row_edges[-1] // lowest), MOST_HEIGHT)


def _steps() -> list[list[object]]:
    """Give the fills as a colour scale that does not blend them."""
    num_fills = len(colours.FILLS)
    return [[(number + side) / num_fills, fill] for number, fill in enumerate(colours.FILLS) for side in (0, 1)]


def _label(ranks: Ranks, num_columns: int, one_by_one: bool) -> str:
    word = "" if one_by_one else f"rank{'s' * (len(ranks) > 1)} "
    return "<br>".join(textwrap.wrap(word + in_runs(ranks), max(3, PLOT_LETTERS // num_columns)))


def _axis(name: str, edges: Sequence[int], one_by_one: bool) -> dict[str, object]:
    """Number the elements in their middle, or the boxes at their edges."""
    at = edges[:-1] if one_by_one else edges[:: math.ceil(len(edges) / MOST_TICKS)]
    ticks = {"tickvals": [edge + 0.5 * one_by_one for edge in at], "ticktext": [f"{edge:,}" for edge in at]}
    return {"title": name, "showgrid": False, **ticks}
