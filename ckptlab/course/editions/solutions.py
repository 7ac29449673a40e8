"""The instructor's copies: each exercise's cell holds the solution, and below it stand the wrong answers that are common."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptlab.course.content import exercise_file
from ckptlab.course.exercise import Exercise, read


def write_solutions(notebooks: Mapping[str, dict[str, Any]], folder: Path) -> None:
    """Write `folder/NAME.ipynb` for each notebook that `solved` gave.

    Raises:
        OSError: a file could not be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, notebook in notebooks.items():
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        (folder / f"{name}.ipynb").write_text(f"{text}\n", encoding="utf-8")


def solved(notebook: dict[str, Any]) -> dict[str, Any]:
    """Give the notebook with every exercise solved. What its cell printed is left out: that was said of another answer."""
    return notebook | {"cells": [new for cell in notebook["cells"] for new in _solved(cell)]}


def _solved(cell: dict[str, Any]) -> list[dict[str, Any]]:
    magic = re.match(r"%%exercise (\S+)\n", "".join(cell["source"]))
    if cell["cell_type"] != "code" or magic is None:
        return [cell]
    exercise = read(exercise_file(magic[1]))
    solution = cell | {"source": f"{magic[0]}{exercise.solution}", "outputs": [], "execution_count": None}
    remarks = {"cell_type": "markdown", "id": f"wrong-{exercise.id.replace('.', '-')}", "metadata": {}}
    return [solution, remarks | {"source": _wrong_answers(exercise)}]


def _wrong_answers(exercise: Exercise) -> str:
    wrong = (f"- `{name}`: {remark}" for name, remark in exercise.wrong.items())
    return "\n".join((f"**Common wrong answers to {exercise.id}**, and what the learner is told:\n", *wrong))
