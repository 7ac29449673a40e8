"""`bench_times`: how long each contender of `ckptlab bench` took, thing by thing."""

from collections.abc import Iterator, Mapping
from typing import Any

import plotly.graph_objects as go

from ckptlab.course.figures import colours
from ckptlab.course.figures.picture import Picture, draw, table, written

ROW_HEIGHT, AXIS_HEIGHT = 24, 46  # pixels
Found = Mapping[str, Mapping[str, Any]]


def bench_times(found: Found, title: str) -> Picture:
    """Draw the medians as bars, with a line from the fastest to the slowest repetition; what is void is left out.

    Args:
        found: by thing that was measured its part of the report of `ckptlab bench --json`: `seconds`, `vs_dcp`, `vs_floor`.
        title: what was measured, and where.

    >>> seconds = {"ckptlab.save": {"median": 0.5, "min": 0.25, "max": 1}, "dcp.save": {"median": 1, "min": 1, "max": 1}}
    >>> print(bench_times({"save": {"seconds": seconds, "vs_dcp": {"ckptlab.save": 2.0}, "vs_floor": {}}}, "On a disk").text)
    On a disk
                        seconds    min    max  vs DCP  vs floor
    save  ckptlab.save    0.500  0.250  1.000    2.00
    save  dcp.save        1.000  1.000  1.000
    """
    header = ("", "", "seconds", "min", "max", "vs DCP", "vs floor")
    return Picture(figure=_figure(found, title), text=f"{title}\n{table([header, *_rows(found)], left=2)}")


def _rows(found: Found) -> Iterator[tuple[str, ...]]:
    for what, measured in found.items():
        for name, spread in measured["seconds"].items():
            ratios = (measured[ratio].get(name) for ratio in ("vs_dcp", "vs_floor"))
            seconds = (f"{spread[which]:.3f}" for which in ("median", "min", "max"))
            yield what, name, *seconds, *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)


def _figure(found: Found, title: str) -> go.Figure:
    bars = [_bars(number, what, measured["seconds"]) for number, (what, measured) in enumerate(found.items())]
    num_rows = sum(len(measured["seconds"]) for measured in found.values())
    return draw(
        bars,
        title,
        ROW_HEIGHT * num_rows,
        below=AXIS_HEIGHT,
        showlegend=False,
        xaxis={"title": "seconds: less is better", "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "showgrid": False, "dtick": 1},
    )


def _bars(number: int, what: str, seconds: Mapping[str, Mapping[str, float]]) -> go.Bar:
    spreads = list(seconds.values())
    return go.Bar(
        orientation="h",
        x=[spread["median"] for spread in spreads],
        y=[[written(what)] * len(spreads), [written(name) for name in seconds]],
        error_x={
            "array": [spread["max"] - spread["median"] for spread in spreads],
            "arrayminus": [spread["median"] - spread["min"] for spread in spreads],
            "color": colours.TEXT,
        },
        marker={"color": colours.fill(number), "line": {"width": 0}},
        hovertemplate="%{x:.3f} s<extra></extra>",
    )
