"""What is committed in `labs/` was run, and says nothing about the machine that ran it."""

import json
import re

import pytest

from ckptlab.course.content import notebooks

TELLTALES = {
    "a path": r"/tmp/|/home/|/root/|/usr/|/Users/|/var/|site-packages|ipykernel_\d",
    "a time": r"\b\d{4}-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b",
    "a duration": r"\b\d+(\.\d+)? ?(ms|s|sec|seconds?|min)\b",
    "a device": r"\bcuda\b|\bcpu\b|NVIDIA|\bmps\b",
    "a build of torch": r"\b2\.\d+\.\d+(\+\w+)?\b",
    "an address in memory": r"\b0x[0-9a-f]{8,}\b",
    "a hash": r"\b[0-9a-f]{32,}\b",
}


@pytest.fixture(params=notebooks(), ids=lambda path: path.stem)
def cells(request) -> list[dict]:
    return [cell for cell in json.loads(request.param.read_text())["cells"] if cell["cell_type"] == "code"]


def texts(cell: dict) -> list[str]:
    """Everything that a reader sees below a cell, pictures in their text form."""
    found = []
    for output in cell["outputs"]:
        for value in (output.get("text"), *output.get("data", {}).values(), output.get("evalue"), output.get("traceback")):
            found.append("".join(value) if isinstance(value, list) else value if isinstance(value, str) else json.dumps(value))
    return found


def test_every_code_cell_was_run_in_order(cells: list[dict]) -> None:
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))


def test_no_output_tells_where_when_or_on_what_it_was_made(cells: list[dict]) -> None:
    told = [
        (what, found[0], "".join(cell["source"])[:60])
        for cell in cells
        for text in texts(cell)
        for what, pattern in TELLTALES.items()
        if (found := re.search(pattern, text))
    ]
    assert told == []


def test_no_output_is_an_error_that_the_lab_does_not_mean(cells: list[dict]) -> None:
    for cell in cells:
        kinds = {output.get("name", output["output_type"]) for output in cell["outputs"]}
        assert "stderr" not in kinds
        assert "error" not in kinds or "raises-exception" in cell["metadata"].get("tags", ())
