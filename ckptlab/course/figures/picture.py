"""`Picture`: a figure and the same in words; and what all figures share: layout, tables, names as text.

A notebook shows the figure and, in a fold below it, the words. Where no figure can be drawn (a terminal, a page without
JavaScript) the words stand in its place. Nothing in the output depends on time or chance, so that nbval compares it.
"""

import html
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from IPython.display import display

from ckptlab.course.figures import colours

TITLE_LETTERS = 42  # that stand side by side at a width of 330 pixels, the outputs' in a window of 700
TITLE_LINE = 20  # pixels
AXIS_TITLE = {"standoff": 4, "font": {"size": 12}}  # plotly's own would be larger than all other words


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure, and its text twin, which says the same numbers; the text's first line is the title."""

    figure: go.Figure
    text: str

    def bundle(self) -> dict[str, object]:
        """Give what a Jupyter output holds: the figure for who can draw it, the text for who cannot."""
        config = {"displayModeBar": False}  # not "responsive": with it JupyterLab loses the height when it draws again
        drawn = {**json.loads(self.figure.to_json()), "config": config}
        return {"application/vnd.plotly.v1+json": drawn, "text/plain": self.text}

    def fold(self, summary: str = "In words") -> str:
        """Give the text as HTML that opens by a click or a key, with the style that suits figures to the page's theme.

        The title stands behind `summary`, so that each fold of a page has a name of its own for a screen reader.
        """
        title, text = html.escape(self.text.partition("\n")[0]), html.escape(self.text)
        return f"{colours.THEME_STYLE}<details><summary>{summary}: {title}</summary><pre>{text}</pre></details>"

    def _ipython_display_(self) -> None:
        show(self.bundle())
        show({"text/html": self.fold()})


def show(bundle: Mapping[str, object]) -> None:
    """Make an output of the running cell, by media type."""
    display(bundle, raw=True)  # type: ignore[no-untyped-call]  # IPython's types stop here


def draw(traces: Iterable[Any], title: str, height: int, *, above: int = 0, below: int = 8, **layout: Any) -> go.Figure:
    """Make a figure that is as wide as the page and readable on a light and on a dark one.

    Args:
        traces: plotly's.
        title: stands above, in as many lines as it takes.
        height: of the plot without title and what is below, in pixels.
        above: pixels between title and plot, for a note.
        below: pixels below the plot, for an axis or a legend.
        layout: more members of plotly's layout; those of `xaxis` and `yaxis` join what all figures have. An axis's `title` is
            its text.
    """
    lines = textwrap.wrap(title, TITLE_LETTERS)
    top = TITLE_LINE * len(lines) + 12 + above
    to_first_line = 10 + above + TITLE_LINE * (len(lines) - 1)  # plotly stands the first line on the anchor
    axis = {"gridcolor": colours.LINE, "zeroline": False, "linecolor": colours.LINE, "fixedrange": True, "automargin": "left"}
    shared: dict[str, Any] = {
        "template": {},  # without plotly's own, which is white and larger than a figure
        "title": {"text": "<br>".join(map(written, lines)), "font": {"size": 15}, "x": 0, "pad": {"l": 8, "b": to_first_line}},
        "font": {"size": 13, "color": colours.TEXT, "family": "system-ui, sans-serif"},
        "paper_bgcolor": colours.CLEAR,
        "plot_bgcolor": colours.CLEAR,
        "margin": {"l": 8, "r": 8, "t": top, "b": below},
        "height": top + height + below,
        "dragmode": False,
        "hoverlabel": {"font": {"color": colours.LABEL}},
    }
    shared["title"] |= {"y": 1, "yref": "paper", "yanchor": "bottom"}
    for name in ("xaxis", "yaxis"):
        shared[name] = axis | layout.pop(name, {})
        if "title" in shared[name]:
            shared[name]["title"] = {"text": shared[name]["title"], **AXIS_TITLE}
    return go.Figure(list(traces), {**shared, **layout})


def table(rows: Iterable[Sequence[object]], *, left: int = 1) -> str:
    """Write rows as columns as wide as their widest cell: the first `left` begin at the left, numbers end at the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    pads = [str.ljust] * left + [str.rjust] * (len(widths) - left)
    return "\n".join(
        "  ".join(pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)).rstrip() for row in texts
    )


def printable(name: str) -> str:
    """Escape what a page or terminal would obey instead of show: names come from files."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)


def written(name: str) -> str:
    """Give text for a figure, in which plotly would take `<b>` for a tag."""
    return html.escape(printable(name), quote=False)


def shortened(name: str, letters: int) -> str:
    """Leave out the middle of a long name: its beginning and its end tell more."""
    return name if len(name) <= letters else f"{name[: letters // 3]}…{name[len(name) - letters + letters // 3 + 1 :]}"
