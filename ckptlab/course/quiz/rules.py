"""What the schema cannot say of a bank: which texts, numbers, ids, headings and files fit together."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ckptlab.course.content import LABS, exercises
from ckptlab.course.languages import fill, names
from ckptlab.course.quiz.arithmetic import number
from ckptlab.course.quiz.headings import headings
from ckptlab.course.quiz.spelling import same
from ckptlab.errors import UsageError

MOST_QUESTIONS, MOST_ENTRIES, MOST_CHARACTERS = 40, 12, 3000


def faults_of(document: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong in a bank that the schema has let through."""
    questions = document["questions"]
    for id_, count in Counter(entry["id"] for entry in questions).items():
        if count > 1:
            yield f"question {id_}: {count} questions have this id"
    if len(questions) > MOST_QUESTIONS:
        yield f"it has {len(questions)} questions; at most {MOST_QUESTIONS} are read"
    for entry in questions:
        for fault in (*_sizes(entry), *_places(document["bank"], entry), *(_shape(entry) or _variants(entry))):
            yield f"question {entry['id']}: {fault}"


def _sizes(entry: dict[str, Any]) -> Iterator[str]:
    for name, value in entry.items():
        if isinstance(value, list) and len(value) > MOST_ENTRIES:
            yield f"{name} has {len(value)} entries; at most {MOST_ENTRIES} are read"
    if any(len(text) > MOST_CHARACTERS for text in _strings(entry)):
        yield f"a text has more than {MOST_CHARACTERS} characters"


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def _places(bank: str, entry: dict[str, Any]) -> Iterator[str]:
    """Look whether what it names exists."""
    lab, _, slug = entry["read"].partition("#")
    if lab != bank:
        yield f"read: {lab}# is another lab; a question is answered by the lab of its bank"
    elif slug not in headings(lab):
        yield f"read: lab {lab} has no heading {slug!r}; it has {', '.join(headings(lab)) or 'none'}"
    if "exercise" in entry and entry["exercise"] not in exercises():
        yield f"exercise: there is no exercise {entry['exercise']}"
    root = LABS.parent
    if "source" in entry and not entry["source"].startswith("https://") and not (root / entry["source"]).is_file():
        yield f"source: there is no file {entry['source']}"


def _shape(entry: dict[str, Any]) -> list[str]:
    """Look at lists and numbers; where these are not as they should be, nothing else is looked at."""
    found = []
    if "options" in entry:
        right = sum("right" in option for option in entry["options"])
        if right != 1 if entry["type"] == "single" else right == 0:
            found.append(f"{right} options are right; {'one' if entry['type'] == 'single' else 'at least one'} should be")
        ids = [option["id"] for option in entry["options"]]
        if len(set(ids)) != len(ids) or not all(re.fullmatch("[a-z0-9-]+", id_) for id_ in ids):
            found.append(f"the options' ids should differ and have only a-z, 0-9 and -: {', '.join(ids)}")
    pairs = entry.get("pairs", [])
    if not all(
        isinstance(pair, dict) and set(pair) == {"left", "right"} and all(map(_is_text, pair.values())) for pair in pairs
    ):
        found.append("a pair has a left and a right, both texts")
    for kind, most in entry.get("within", {}).items():
        if kind not in ("relative", "absolute") or not _is_number(most) or most < 0 or (kind == "relative" and most >= 1):
            found.append(f"within: {kind}: {most!r}; wanted is relative (below 1) or absolute, from 0")
    return [*found, *_names(entry)]


def _names(entry: dict[str, Any]) -> Iterator[str]:
    variants = entry.get("variants", [{}])
    if any(set(variant) != set(variants[0]) for variant in variants):
        yield "every variant has the same names"
        return
    if any(variants.count(variant) > 1 for variant in variants):
        yield "two variants are equal"
    for name in variants[0]:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            yield f"variants: {name!r} cannot stand in braces"
        if not all(_is_text(variant[name]) or _is_number(variant[name]) for variant in variants):
            yield f"variants: {name} is a text or a number"
    used = {name for _, text in _said(entry) for name in names(text)}
    for name in sorted(used - set(variants[0])):
        yield f"{{{name}}} stands in a text and in no variant"


def _said(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts in which {names} stand for values, with the member they belong to."""
    for name in ("ask", "because", "answer", "unit", "accept", "items", "pairs", "near", "options"):
        value = entry.get(name, [])
        parts = [
            {key: text for key, text in part.items() if key != "id"} if isinstance(part, dict) else part
            for part in (value if isinstance(value, list) else [value])
        ]
        yield from ((name, text) for text in _strings(parts))


def _variants(entry: dict[str, Any]) -> Iterator[str]:
    """Look at the texts as they are shown, variant by variant."""
    for number_of, values in enumerate(entry.get("variants", [{}]), start=1):
        place = f"variant {number_of}: " if "variants" in entry else ""
        shown = {name: [fill(text, values) for part, text in _said(entry) if part == name] for name in ("items", "accept")}
        shown["options"] = [fill(option["text"], values) for option in entry.get("options", [])]
        shown["left sides"] = [fill(pair["left"], values) for pair in entry.get("pairs", [])]
        for name, texts in shown.items():
            if len(set(texts)) != len(texts):
                yield f"{place}two {name} say the same"
        nears = [fill(near["value"], values) for near in entry.get("near", [])]
        yield from (
            f"{place}{fault}" for fault in _answers(entry, fill(entry.get("answer", ""), values), nears, shown["accept"])
        )


def _answers(entry: dict[str, Any], answer: str, nears: list[str], accept: list[str]) -> Iterator[str]:
    if entry["type"] == "text":
        yield from (f"near: {near!r} is right" for near in nears if any(same(near, right) for right in accept))
    if entry["type"] != "numeric":
        return
    try:
        wanted, values = number(answer), [number(near) for near in nears]
    except UsageError as error:
        yield str(error)
        return
    ((kind, most),) = entry["within"].items()
    reach = number(str(most)) * (abs(wanted) if kind == "relative" else 1)
    yield from (f"near: {near} is right" for near, value in zip(nears, values, strict=True) if abs(value - wanted) <= reach)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
