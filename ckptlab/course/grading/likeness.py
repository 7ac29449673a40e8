"""Which files are the same in part. It accuses nobody: two may have worked together, or one has handed in twice. Pure."""

import ast
import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from itertools import combinations

from ckptlab.course.grading.parsing import NOT_PARSED, parse

LEAST_ALIKE = 4  # right answers that must all be the same; fewer may well agree by chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What of a file is compared with other files."""

    attempts: Set[str]  # from the journal, each with its time
    answers: Mapping[str, str]  # fingerprints of right answers, by exercise id; not those that are the course's own


def fingerprint(source: str) -> str | None:
    """Return a digest of what an answer does: comments, docstrings and white space do not count. None when it is not Python."""
    try:
        tree = parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        return hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    except NOT_PARSED:
        return None


def mark_alike(traces: Mapping[str, Traces]) -> dict[str, list[str]]:
    """Compare every file with every other; return the marks by file."""
    marks: dict[str, list[str]] = {file: [] for file in traces}
    for one, other in combinations(traces, 2):
        for found in _compare(traces[one], traces[other]):
            marks[one].append(f"{found} the same as in {other}")
            marks[other].append(f"{found} the same as in {one}")
    return marks


def _compare(one: Traces, other: Traces) -> list[str]:
    found = []
    if shared := len(one.attempts & other.attempts):
        found.append(f"{shared} attempt{'s' if shared > 1 else ''} of the journal, with time and source,")
    both = one.answers.keys() & other.answers.keys()
    if len(both) >= LEAST_ALIKE and all(one.answers[id_] == other.answers[id_] for id_ in both):
        found.append(f"all {len(both)} right answers that both have (comments and the course's own solutions left out)")
    return found
