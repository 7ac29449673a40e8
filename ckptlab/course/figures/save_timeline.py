"""`save_timeline`: which phase of a save each rank was in, and when."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import plotly.graph_objects as go

from ckptlab.course.figures import colours
from ckptlab.course.figures.picture import Picture, draw, printable, table, written
from ckptlab.errors import UsageError

Ended = Sequence[tuple[str, float]]  # a phase and when it ended, in seconds; the first entry only says when the save began
PATTERNS = ("", "/", "", "x", "", ".", "", "|")
ROW_HEIGHT, LEGEND_HEIGHT = 46, 96  # pixels


def save_timeline(by_rank: Sequence[Ended]) -> Picture:
    """Draw the phases of one save, a bar a rank, from what its `on_phase` was told.

    Args:
        by_rank: for each rank its phases in order, each with the time of its end by `time.monotonic()`; the first entry is the
            beginning, under any name. Each bar begins at 0, so let the ranks meet in a barrier before they begin.

    Raises:
        UsageError: there is no phase, the ranks do not tell of the same phases, or a phase ends before it begins.

    >>> told = [("begin", 5.0), ("write", 5.25), ("agree", 6.0)], [("begin", 5.0), ("write", 5.875), ("agree", 6.0)]
    >>> print(save_timeline(told).text)
    A save, phase by phase: milliseconds
            write  agree  in all
    rank 0    250    750   1,000
    rank 1    875    125   1,000
    """
    phases = _phases(by_rank[0]) if by_rank else []
    if not phases:
        raise UsageError("no phase is told of; give for each rank a beginning and one phase or more")
    for rank, ended in enumerate(by_rank):
        if _phases(ended) != phases:
            raise UsageError(f"rank {rank} tells of the phases {_phases(ended)}; expected {phases}, as on rank 0")
    lengths = [list(_lengths(ended)) for ended in by_rank]
    for rank, row in enumerate(lengths):
        if wrong := [
            f"{phase!r} lasts {length}" for phase, length in zip(phases, row, strict=True) if not 0 <= length < math.inf
        ]:
            raise UsageError(f"rank {rank}: {wrong[0]} ms; give when the phases ended, in seconds and in order")
    title = "A save, phase by phase: milliseconds"
    rows = [[f"rank {rank}", *map(_say, row), _say(sum(row))] for rank, row in enumerate(lengths)]
    return Picture(
        figure=_figure(title, [written(phase) for phase in phases], lengths),
        text="\n".join([title, table([["", *map(printable, phases), "in all"], *rows], left=1)]),
    )


def _phases(ended: Ended) -> list[str]:
    return [phase for phase, _ in ended[1:]]


def _lengths(ended: Ended) -> Iterator[float]:
    for (_, before), (_, after) in pairwise(ended):
        yield 1000 * (after - before)


def _say(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 10 else f"{milliseconds:.1f}"


def _figure(title: str, phases: Sequence[str], lengths: Sequence[Sequence[float]]) -> go.Figure:
    names = [f"rank {rank}" for rank in range(len(lengths))]
    bars = [
        go.Bar(
            name=phase,
            orientation="h",
            x=[row[number] for row in lengths],
            y=names,
            text=phase,
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": colours.LABEL},
            marker={"color": colours.fill(number), "pattern": _pattern(number), "line": {"color": colours.LABEL, "width": 1}},
            hovertemplate=phase + ": %{x:,.1f} ms<extra></extra>",
        )
        for number, phase in enumerate(phases)
    ]
    return draw(
        bars,
        title,
        ROW_HEIGHT * len(names),
        below=LEGEND_HEIGHT,
        barmode="stack",
        uniformtext={"minsize": 11, "mode": "hide"},
        xaxis={"ticksuffix": " ms", "nticks": 5},
        yaxis={"autorange": "reversed", "showgrid": False},
        legend={"orientation": "h", "traceorder": "normal", "x": 0, "xref": "container", "y": 0, "yref": "container"},
    )


def _pattern(number: int) -> dict[str, object]:
    shape = PATTERNS[number % len(PATTERNS)]
    return {"shape": shape, "fillmode": "overlay", "fgcolor": colours.LABEL, "fgopacity": 0.5, "size": 7}
