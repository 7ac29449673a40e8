"""`anatomy`: what a safetensors file is made of, byte for byte."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import plotly.graph_objects as go

from ckptlab.course.figures import colours
from ckptlab.course.figures.picture import Picture, draw, printable, shortened, table, written
from ckptlab.errors import FormatError
from ckptlab.format.header import parse_header
from ckptlab.steps.reading import read_head

MOST_TENSORS = 20  # that are drawn one by one
BLOCK_HEIGHT, STRIP_HEIGHT = 40, 90  # pixels
NAME_LETTERS = 30  # beside dtype and shape, at a width of 400 pixels


class Part(NamedTuple):
    """A span of the file, in bytes from its start; `end` is the first byte behind it."""

    name: str
    what: str
    begin: int
    end: int
    fill: str


def anatomy(path: str | Path) -> Picture:
    """Draw a safetensors file: above to scale, below one block a part, whatever its size.

    Begin and end count from the start of the file; the header's own `data_offsets` count from where the data begins.
    Raises `FormatError` when the file is not a safetensors file.
    """
    path = Path(path)
    try:
        head, num_bytes = read_head(path)
        parts = [*_frame(head), *_tensors(head, num_bytes)]
    except FormatError as error:
        raise FormatError(f"{path.name}: {error}") from error
    title = f"{path.name}: {num_bytes:,} bytes"
    rows = [(part.name, part.what, *(f"{n:,}" for n in (part.begin, part.end, part.end - part.begin))) for part in parts]
    text = table([("part", "what", "begin", "end", "bytes"), *rows], left=2)
    return Picture(figure=_figure(title, parts), text=f"{printable(title)}\n{text}")


def _frame(head: bytes) -> Iterator[Part]:
    json_end = len(head.rstrip(b" "))
    yield Part("length", f"{len(head) - 8:,}, as little-endian U64", 0, 8, colours.ORANGE)
    yield Part("JSON header", "names, dtypes, shapes, data_offsets", 8, json_end, colours.SKY)
    if json_end < len(head):
        yield Part("padding", "spaces", json_end, len(head), colours.GREY)


def _tensors(head: bytes, num_bytes: int) -> Iterator[Part]:
    """Tell the tensors apart by three fills in turn; put the last ones together where they are too many."""
    entries = list(parse_header(head, num_bytes).items())
    num_shown = len(entries) if len(entries) <= MOST_TENSORS else MOST_TENSORS - 1
    for (name, entry), fill in zip(entries[:num_shown], cycle((colours.GREEN, colours.YELLOW, colours.PURPLE)), strict=False):
        what = f"{entry.spec.dtype} {list(entry.spec.shape)}"
        yield Part(printable(name), what, entry.begin, entry.begin + entry.spec.num_bytes, fill)
    if rest := entries[num_shown:]:
        yield Part(f"{len(rest)} more tensors", "", rest[0][1].begin, num_bytes, colours.VERMILLION)


def _figure(title: str, parts: Sequence[Part]) -> go.Figure:
    height = STRIP_HEIGHT + BLOCK_HEIGHT * len(parts)
    hidden = {"visible": False, "fixedrange": True}
    return draw(
        [*map(_strip, parts), _blocks(parts), _labels(parts)],
        title,
        height,
        barmode="stack",
        showlegend=False,
        xaxis={"title": "byte of the file", "range": [0, parts[-1].end], "nticks": 5},
        yaxis={"domain": [1 - 28 / height, 1]} | hidden,
        xaxis2={"range": [0, 1], "anchor": "y2"} | hidden,
        yaxis2={"range": [len(parts) - 0.5, -0.5], "domain": [0, 1 - STRIP_HEIGHT / height]} | hidden,
    )


def _strip(part: Part) -> go.Bar:
    return go.Bar(
        orientation="h",
        x=[part.end - part.begin],
        base=[part.begin],
        y=[0],
        width=1,
        marker={"color": part.fill, "line": {"width": 0}},
        hovertemplate=f"{written(part.name)}: {part.begin:,} to {part.end:,}<extra></extra>",
    )


def _blocks(parts: Sequence[Part]) -> go.Bar:
    return go.Bar(
        orientation="h",
        x=[1] * len(parts),
        y=list(range(len(parts))),
        width=0.94,
        xaxis="x2",
        yaxis="y2",
        marker={"color": [part.fill for part in parts], "line": {"width": 0}},
        hoverinfo="skip",
    )


def _labels(parts: Sequence[Part]) -> go.Scatter:
    """Write apart from the blocks: a bar centres the lines of its text."""
    return go.Scatter(
        mode="text",
        x=[0.005] * len(parts),
        y=list(range(len(parts))),
        xaxis="x2",
        yaxis="y2",
        text=[_label(part) for part in parts],
        textposition="middle right",
        textfont={"color": colours.LABEL, "size": 12},
        hoverinfo="skip",
    )


def _label(part: Part) -> str:
    name = written(shortened(part.name, NAME_LETTERS))
    return f"<b>{name}</b> {part.what}<br>{part.begin:,} to {part.end:,}: {part.end - part.begin:,} bytes"
