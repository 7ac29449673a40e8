"""Notebooks as pages that need no kernel and no network: one page each, with what they share beside them.

The texts of `labs/` and the exercises' files become pages too, so that links between files of `labs/` lead on. A figure is
drawn by plotly's own script; where no script runs, its words stand in its place.
"""

import importlib.metadata
import json
import re
import shutil
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter

from ckptlab.course.content import EXERCISES, LABS, exercises
from ckptlab.course.exercise import read

HERE = Path(__file__).parent
FIGURE = "application/vnd.plotly.v1+json"
PLOTLY_JS = Path(str(importlib.metadata.distribution("plotly").locate_file("plotly/package_data/plotly.min.js")))
ABOUT_EXERCISES = """# The exercises

Each with its stub, hints, solution, the wrong answers that are common, and the check. Do not read ahead."""


def write_pages(notebooks: Mapping[str, dict[str, Any]], folder: Path, edition: str) -> None:
    """Write `folder/NAME.html` for each notebook, in order, and `index.html`, which is the README of the labs.

    Args:
        notebooks: by name ("02_shards"), as JSON gives them.
        folder: is made if it is not there.
        edition: stands at the head of every page.

    Raises:
        OSError: a file could not be written.
    """
    pages = {**_texts(), "exercises": _exercises(), **notebooks}
    export = HTMLExporter(  # type: ignore[no-untyped-call]  # nbconvert's
        raw_template=(HERE / "page.html.j2").read_text(encoding="utf-8"),
        template_name="base",
        exclude_anchor_links=True,
        config={"NbConvertBase": {"display_data_priority": [FIGURE, "text/html", "text/plain"]}},
    )
    folder.mkdir(parents=True, exist_ok=True)
    for shared in (PLOTLY_JS, HERE / "page.css", HERE / "page.js"):
        shutil.copyfile(shared, folder / shared.name)
    for name, notebook in pages.items():
        facts = {"title": _title(notebook), "edition": edition, "has_figures": _has_figures(notebook)}
        linked = notebook | {"cells": [_linked(cell, pages) for cell in notebook["cells"]]}
        node = nbformat.reads(json.dumps(linked), as_version=4)  # type: ignore[no-untyped-call]  # nbformat's
        text, _ = export.from_notebook_node(node, facts | _neighbours(name, notebooks))
        (folder / f"{name}.html").write_text(text, encoding="utf-8")


def _texts() -> dict[str, dict[str, Any]]:
    """Give the texts that stand beside the labs, as notebooks of one cell."""
    names = {path: "index" if path.stem == "README" else path.stem for path in sorted(LABS.glob("*.md"))}
    return {name: _notebook([_cell("markdown", path.read_text(encoding="utf-8"))]) for path, name in names.items()}


def _exercises() -> dict[str, Any]:
    """Give all exercises' files in one notebook, each folded."""
    cells = [_cell("markdown", ABOUT_EXERCISES)]
    for id_, path in exercises().items():
        code = _cell("code", path.read_text(encoding="utf-8").rstrip(), fold=f"{id_} {read(path).title}")
        cells.append(code | {"outputs": [], "execution_count": None})
    return _notebook(cells)


def _notebook(cells: list[dict[str, Any]]) -> dict[str, Any]:
    return {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 4}


def _cell(kind: str, source: str, **metadata: str) -> dict[str, Any]:
    return {"cell_type": kind, "source": source, "metadata": metadata}


def _title(notebook: dict[str, Any]) -> str:
    """Give the heading that every notebook and text begins with."""
    first = "".join(notebook["cells"][0]["source"])
    heading = re.search(r"^#+ *(.+)$", first, re.MULTILINE)
    return heading[1] if heading else first.partition("\n")[0]


def _has_figures(notebook: dict[str, Any]) -> bool:
    return any(FIGURE in output.get("data", ()) for cell in notebook["cells"] for output in cell.get("outputs", ()))


def _neighbours(name: str, notebooks: Mapping[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Give name and title of the notebooks before and after a notebook; other pages have none."""
    if name not in notebooks:
        return {}
    order = list(notebooks)
    here = order.index(name)
    places = {"before": order[:here][-1:], "after": order[here + 1 :][:1]}
    return {place: (found[0], _title(notebooks[found[0]])) for place, found in places.items() if found}


def _linked(cell: dict[str, Any], pages: Container[str]) -> dict[str, Any]:
    """Lead links to files of `labs/` to their pages, and make a link of a notebook's name; give the source as one string."""

    def lead(link: re.Match[str]) -> str:
        path = LABS / link["file"]
        if not link["file"] or not path.exists():
            return link[0]  # an address, a place on this page, or no link at all
        name = "index" if path.name == "README.md" else path.stem
        name = "exercises" if EXERCISES in (path, path.parent) else name
        return f"[{link['text']}]({name}.html)" if name in pages else link["text"]

    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        source = re.sub(r"(?<!\[)`(\w+\.ipynb)`", r"[`\1`](\1)", source)
        source = re.sub(r"\[(?P<text>[^\]]*)\]\((?P<file>[^)#\s]*)[^)\s]*\)", lead, source)
    return cell | {"source": source}
