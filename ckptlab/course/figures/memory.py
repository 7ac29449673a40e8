"""`memory`: what training takes on each rank, by what is sharded."""

from collections.abc import Mapping
from types import MappingProxyType

import plotly.graph_objects as go

from ckptlab.course.figures import colours
from ckptlab.course.figures.picture import Picture, draw, table

BYTES: Mapping[str, int] = MappingProxyType(  # a parameter
    {"parameters": 2, "gradients": 2, "master weights": 4, "first moment": 4, "second moment": 4}
)
SCHEMES: Mapping[str, int] = MappingProxyType(  # how many of these, from the end, are sharded
    {"data parallel": 0, "ZeRO 1": 3, "ZeRO 2": 4, "ZeRO 3": 5}
)
PATTERNS = ("", "/", "", "x", ".")
GB = 10**9
DEVICE_GB = 80  # an H100


def memory(num_parameters: float, num_ranks: int) -> Picture:
    """Draw the bytes a rank of a model's training state, with a line for what a device has.

    Mixed-precision Adam keeps 2 + 2 + 4 + 4 + 4 bytes a parameter: parameters and gradients in 16 bits, and in 32 bits a
    master copy of the parameters and two moments. Data parallel keeps all of it on every rank. ZeRO 1 shards the last three
    over the ranks, ZeRO 2 the gradients too, ZeRO 3 the parameters too. Source: Rajbhandari, Rasley, Ruwase, He,
    "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (2020), section 3 and figure 1. Activations,
    buffers and, under ZeRO 3, gathered layers come on top.

    Args:
        num_parameters: of the whole model.
        num_ranks: over which is sharded.
    """
    gb = {scheme: _gb_by_part(num_parameters, num_ranks, num_sharded) for scheme, num_sharded in SCHEMES.items()}
    totals = {scheme: sum(parts.values()) for scheme, parts in gb.items()}
    title = f"Memory a rank: {num_parameters / 1e9:,.4g} billion parameters, {num_ranks:,} ranks"
    header = ("GB a rank", *BYTES, "in all", f"in {DEVICE_GB} GB")
    rows = [
        (scheme, *map(_say, parts.values()), _say(totals[scheme]), "fits" if totals[scheme] <= DEVICE_GB else "too much")
        for scheme, parts in gb.items()
    ]
    return Picture(figure=_figure(title, gb, totals), text=f"{title}\n{table([header, *rows])}")


def _gb_by_part(num_parameters: float, num_ranks: int, num_sharded: int) -> dict[str, float]:
    first_sharded = len(BYTES) - num_sharded
    return {
        part: num_parameters * num_bytes / (num_ranks if number >= first_sharded else 1) / GB
        for number, (part, num_bytes) in enumerate(BYTES.items())
    }


def _say(gb: float) -> str:
    return f"{gb:,.1f}" if gb >= 0.05 else f"{gb:.2g}"


def _figure(title: str, gb: Mapping[str, Mapping[str, float]], totals: Mapping[str, float]) -> go.Figure:
    names = [f"{scheme}<br>{_say(total)} GB" for scheme, total in totals.items()]
    bars = [
        go.Bar(
            name=part,
            orientation="h",
            x=[round(parts[part], 3) for parts in gb.values()],
            y=names,
            marker={"color": colours.fill(number), "pattern": _pattern(number), "line": {"width": 0}},
            hovertemplate="%{x:,.1f} GB of " + part + "<extra></extra>",
        )
        for number, part in enumerate(BYTES)
    ]
    longest = 1.05 * max(*totals.values(), DEVICE_GB)
    figure = draw(
        bars,
        title,
        230,
        above=20,
        below=125,
        barmode="stack",
        xaxis={"ticksuffix": " GB", "range": [0, round(longest, 3)], "nticks": 5},
        yaxis={"autorange": "reversed", "showgrid": False},
        legend={"orientation": "h", "traceorder": "normal", "x": 0, "xref": "container", "y": 0, "yref": "container"},
    )
    line = {"color": colours.TEXT, "width": 3}
    side = "left" if longest / 2 > DEVICE_GB else "right"
    words = {"text": f"a device: {DEVICE_GB} GB", "xanchor": side, "yanchor": "bottom", "y": 1, "yref": "paper"}
    return figure.add_vline(DEVICE_GB, line=line, annotation=words)


def _pattern(number: int) -> dict[str, object]:
    return {"shape": PATTERNS[number], "fillmode": "overlay", "fgcolor": colours.LABEL, "fgopacity": 0.6, "size": 7}
