"""`step_map`: what a checkpoint's directory holds, by size."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import plotly.graph_objects as go

from ckptlab.course.figures import colours
from ckptlab.course.figures.picture import Picture, draw, printable, table, written
from ckptlab.errors import FormatError
from ckptlab.format.manifest import Manifest
from ckptlab.steps.reading import tensors_by_file
from ckptlab.steps.steps import find_step

LINE_LETTERS = 16
MOST_TENSORS = 12  # of a file that are drawn one by one, the largest
FILLS: Mapping[str, str] = MappingProxyType(  # by folder
    {"model": colours.GREEN, "optim": colours.SKY, "ranks": colours.ORANGE, "pieces": colours.PURPLE, "": colours.YELLOW}
)


class Area(NamedTuple):
    """A file, or (`inside` names the file) something in it."""

    name: str
    num_bytes: int
    inside: str
    fill: str


def step_map(step_path: str | Path) -> Picture:
    """Draw the files of a step and the tensors in them, as large as their bytes, as the manifest records them.

    Raises `StepError` or `FormatError` when the step, or its manifest, is not there.
    """
    step = find_step(Path(step_path))
    if step.manifest is None:
        raise FormatError(f"{step.path.name}: {step.fault}; there is nothing to show")
    areas = list(_areas(step.manifest))
    title = f"{step.path.name}: {step.num_bytes:,} bytes in {len(step.manifest.files)} files, and manifest.json"
    rows = [("  " * bool(area.inside) + area.name, f"{area.num_bytes:,}") for area in areas]
    text = table([("file, and tensors in it", "bytes"), *rows])
    return Picture(figure=_figure(title, step.path.name, step.num_bytes, areas), text=f"{title}\n{text}")


def _areas(manifest: Manifest) -> Iterator[Area]:
    pieces = tensors_by_file(manifest)
    for file, record in manifest.files.items():
        fill = FILLS[file.rpartition("/")[0]]
        yield Area(file, record.num_bytes, "", fill)
        sizes = sorted(((end - begin, name) for begin, end, name in pieces.get(file, [])), key=lambda item: (-item[0], item[1]))
        if sizes:
            num_bytes = sum(size for size, _ in sizes)
            yield Area("header and padding", record.num_bytes - num_bytes, file, colours.GREY)
        num_shown = len(sizes) if len(sizes) <= MOST_TENSORS else MOST_TENSORS - 1
        for size, name in sizes[:num_shown]:
            yield Area(printable(name), size, file, fill)
        if rest := sizes[num_shown:]:
            yield Area(f"{len(rest)} more tensors", sum(size for size, _ in rest), file, fill)


def _figure(title: str, step: str, num_bytes: int, areas: list[Area]) -> go.Figure:
    """An id is the way to an area; a tensor's name alone may stand in several files."""
    tree = go.Treemap(
        ids=[step, *(f"{step}/{area.inside}/{area.name}" for area in areas)],
        parents=["", *(f"{step}//{area.inside}" if area.inside else step for area in areas)],
        labels=["", *(_label(area) for area in areas)],  # the title names the step
        values=[num_bytes, *(area.num_bytes for area in areas)],
        text=["", *(f"{area.num_bytes:,} bytes" for area in areas)],
        branchvalues="total",
        marker={"colors": [colours.CLEAR, *(area.fill for area in areas)], "line": {"color": colours.LABEL, "width": 1}},
        texttemplate="%{label}<br>%{text}",
        textfont={"color": colours.LABEL, "size": 12},
        hovertext=[step, *(written(area.name) for area in areas)],
        hovertemplate="%{hovertext}<br>%{text}<extra></extra>",
        pathbar={"visible": False},
        tiling={"pad": 2},
    )
    return draw([tree], title, 420, uniformtext={"minsize": 11, "mode": "hide"})


def _label(area: Area) -> str:
    """Leave out of a file's name what its colour and its place say; break a long name behind its dots."""
    name = area.name.rpartition("/")[2].removesuffix(".safetensors")
    lines = textwrap.wrap(re.sub(r"(::|\.)", r"\1 ", name), LINE_LETTERS) if area.inside else [name]
    return "<br>".join(written(line.replace(": ", ":").replace(". ", ".")) for line in lines)
