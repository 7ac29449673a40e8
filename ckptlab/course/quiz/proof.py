"""Does the key of a question agree with what its proof computes? A proof is Python of our own banks; it runs in a rank.

It gets the variant's values as variables and sets the same names, or the key by its name in `KEYS`. Everything that it sets of
these has to agree with the bank, and it has to set what makes the key, for every variant. Lists may be prefixes. A proof begins
in an empty folder and without a process group, so that it can make its own.
"""

import ast
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import cast

from ckptlab.course.content import LABS
from ckptlab.course.languages import fill, names
from ckptlab.course.quiz.arithmetic import number
from ckptlab.course.quiz.bank import Bank, Question, Values
from ckptlab.errors import WorldError
from ckptlab.ranks import World

SECONDS = 30.0  # for one proof
KEYS = {
    "single": "right",
    "multiple": "right",
    "numeric": "answer",
    "text": "accept",
    "match": "pairs",
    "order": "items",
}


def faults(bank: Bank, seconds: float = SECONDS) -> Iterator[str]:
    """Run every proof of a bank, each in a rank of its own; yield what does not agree, or does not end in `seconds`."""
    for question in bank.questions:
        for place, values in enumerate(question.variants if question.proof else (), start=1):
            yield from (f"{bank.name}.{question.id}, variant {place}: {fault}" for fault in _faults(question, values, seconds))


def _faults(question: Question, values: Values, seconds: float) -> list[str]:
    try:
        wanted = [name for name in _names_set(question.proof) if name in (*values, KEYS[question.type])]
        with redirect_stdout(StringIO()), World(1, timeout=seconds) as world:  # what proofs and their processes print
            world.run("dist.destroy_process_group()")
            (found,) = world.run(run_proof, question.proof, dict(values), wanted, str(LABS.parent))
    except SyntaxError as error:
        return [f"the proof is no Python: {error}"]
    except WorldError as error:
        return [f"the proof did not end well: {str(error).splitlines()[0]}"]
    return [*compare(question, values, cast(dict[str, object], found)), *_missing(question, wanted)]


def run_proof(source: str, values: dict[str, object], wanted: list[str], root: str) -> dict[str, object]:
    """Run a proof in an empty folder and return the values of the names wanted. On a rank."""
    before = os.getcwd()
    sys.path[:] = [*([root] if root not in sys.path else []), *sys.path]
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        os.chdir(folder)
        try:
            exec(compile(source, "<proof>", "exec"), values)
        finally:
            os.chdir(before)
    return {name: _plain(values[name]) for name in wanted if name in values}


def compare(question: Question, values: Values, found: Mapping[str, object]) -> Iterator[str]:
    """Yield where a bank does not say what its proof has found."""
    for name, value in found.items():
        stands = _in_bank(question, values, name)
        if name == "answer":
            agrees = _is_number(value) and question.is_near_enough(number(str(value)), number(str(stands)))
        elif isinstance(stands, list) and name != "right":
            agrees = isinstance(value, list) and len(value) > 0 and list(map(str, value)) == stands[: len(value)]
        elif isinstance(stands, list):
            agrees = sorted(value if isinstance(value, list) else [str(value)]) == sorted(stands)
        else:
            agrees = _agrees(value, stands)
        if not agrees:
            yield f"{name} is {stands!r} in the bank; the proof finds {value!r}"


def _in_bank(question: Question, values: Values, name: str) -> object:
    match name:
        case "answer":
            return fill(question.answer, values)
        case "accept":
            return [fill(text, values) for text in question.accept]
        case "items":
            return [fill(text, values) for text in question.items]
        case "pairs":
            return [fill(right, values) for _, right in question.pairs]
        case "right":
            return [option.id for option in question.options if option.right]
    return values[name]


def _missing(question: Question, wanted: list[str]) -> Iterator[str]:
    """Yield a fault where a proof says nothing of the key."""
    right = [option.text for option in question.options if option.right]
    texts = [*right, question.answer, *question.accept, *(right for _, right in question.pairs)]
    if KEYS[question.type] not in wanted and not {name for text in texts for name in names(text)} & {*wanted}:
        yield f"the proof sets nothing that makes the key: neither {KEYS[question.type]} nor a name that stands in it"


def _names_set(source: str) -> list[str]:
    """Return what a proof assigns, so that a name which it only reads proves nothing."""
    tree = ast.walk(ast.parse(source))
    return sorted({node.id for node in tree if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)})


def _plain(value: object) -> object:
    to_list = getattr(value, "tolist", None)  # a tensor, an array or one of their numbers
    if callable(to_list):
        return to_list()
    if isinstance(value, list | tuple | set | frozenset):
        parts = [_plain(part) for part in value]
        return sorted(parts, key=str) if isinstance(value, set | frozenset) else parts
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _agrees(value: object, stands: object) -> bool:
    if _is_number(value) and _is_number(stands):
        one, other = number(str(value)), number(str(stands))
        return abs(one - other) <= abs(other) / 10**9
    return str(value) == str(stands)
