"""An exercise as the kernel sees it: its file read by `ast`, never run, so that no torch is loaded. Pure but for reading."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptlab.course.content import id_of

WRONG = "wrong_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """What stands in an exercise's file."""

    id: str  # "2.1"
    path: Path
    title: str
    minutes: int  # as the heading above its cell says
    world_sizes: tuple[int, ...]
    hints: tuple[str, ...]
    in_kernel: bool  # it needs no ranks: the learner's function is also defined in the kernel
    name: str  # of the function to write
    stub: str  # the text of the cell below the magic line
    sources: dict[str, str]  # "solution" and every "wrong_…": the source as a learner would have written it
    wrong: dict[str, str]  # what each wrong answer means, in words

    @property
    def solution(self) -> str:
        """The solution's source, as a learner would have written it."""
        return self.sources["solution"]


def read(path: Path) -> Exercise:
    """Read an exercise's file.

    Raises:
        ValueError: it is none; the message says what is missing.
    """
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, path.name)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    values = {name: value for node in tree.body for name, value in _constant(node)}
    stub = _find_stub(functions, path)
    answers = [name for name in functions if name == "solution" or name.startswith(WRONG)]
    helpers = {name: _text(text, function) for name, function in functions.items() if name.startswith("_")}
    return Exercise(
        id=_id(path),
        path=path,
        title=(ast.get_docstring(tree) or "").partition("\n")[0],
        minutes=_find(values, "MINUTES", path),
        world_sizes=tuple(_find(values, "WORLD_SIZES", path)),
        hints=tuple(_find(values, "HINTS", path)),
        in_kernel=bool(values.get("IN_KERNEL", False)),
        name=stub.name,
        stub=_text(text, stub),
        sources={name: _whole(_renamed(_text(text, functions[name]), name, stub.name), helpers) for name in answers},
        wrong={name: _in_one_line(functions[name]) for name in answers if name != "solution"},
    )


def _find_stub(functions: dict[str, ast.FunctionDef], path: Path) -> ast.FunctionDef:
    for name in ("solution", "check"):
        if name not in functions:
            raise ValueError(f"{path.name} has no function {name}")
    others = [name for name in functions if name not in ("solution", "check") and not name.startswith((WRONG, "_"))]
    if len(others) != 1:
        raise ValueError(f"{path.name} should have one function for the learner to write; it has {others}")
    return functions[others[0]]


def _constant(node: ast.stmt) -> Sequence[tuple[str, object]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper() and not name.startswith("_"):
            return [(name, ast.literal_eval(value))] if name in ("MINUTES", "WORLD_SIZES", "HINTS", "IN_KERNEL") else []
    return []


def _find(values: dict[str, Any], name: str, path: Path) -> Any:
    if name not in values:
        raise ValueError(f"{path.name} does not say {name}")
    return values[name]


def _id(path: Path) -> str:
    if (found := id_of(path)) is None:
        raise ValueError(f"{path.name} is not named like ex02_1_rows_of_a_rank.py")
    return found


def _text(text: str, function: ast.FunctionDef) -> str:
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : function.end_lineno])


def _renamed(source: str, name: str, to: str) -> str:
    return source.replace(f"def {name}(", f"def {to}(", 1)


def _whole(source: str, helpers: dict[str, str]) -> str:
    """Put the file's own functions that a source calls before it: an answer is given no name that begins with "_"."""
    used = [name for name in helpers if re.search(rf"\b{name}\b", source)]
    others = {name: text for name, text in helpers.items() if name not in used}
    return "\n\n\n".join([*(_whole(helpers[name], others) for name in used), source])


def _in_one_line(function: ast.FunctionDef) -> str:
    return " ".join((ast.get_docstring(function) or "").split())
