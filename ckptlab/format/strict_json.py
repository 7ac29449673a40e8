"""JSON, read strictly and written one way; and the few questions that readers ask of a parsed value.

Whatever the bytes are, reading ends in a value or a `FormatError`, in time near-linear in their number. `where` is
the place in the document for the message, such as `manifest.files`.
"""

import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Collection
from typing import NoReturn

from ckptlab.errors import FormatError

LIMIT = 2**63  # sizes and offsets stay below: what a file system and torch can count
_LINES = json.JSONEncoder(indent=1, ensure_ascii=False, allow_nan=False)
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_json(data: bytes, what: str, at_most: int) -> object:
    """Read UTF-8 JSON of at most `at_most` bytes; refuse duplicate keys, NaN and infinity, lone surrogates, deep nesting."""
    check_size(data, what, at_most)
    try:
        text = data.decode()
        value: object = json.loads(text, object_pairs_hook=_members, parse_float=_finite, parse_constant=_no_constant)
        if _ESCAPED_SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # escaped halves that found no partner cannot be encoded
    except (ValueError, RecursionError, FormatError) as error:
        raise FormatError(f"{what}: not strict JSON: {error}") from None
    return value


def dump_json(value: object) -> bytes:
    """Write JSON as every file of a step has it: UTF-8, one line a value, members in the order given."""
    return _dump(_LINES, value) + b"\n"


def dump_sorted(value: object) -> bytes:
    """Write compact JSON with sorted keys, the same bytes for every order and spacing: what a sum of a document covers."""
    return _dump(_SORTED, value)


def check_size(data: bytes, what: str, at_most: int) -> None:
    """Refuse a document that no reader would take into memory."""
    if len(data) > at_most:
        raise FormatError(f"{what}: {len(data)} bytes, expected at most {at_most}")


def is_unicode(text: str) -> bool:
    """Say whether UTF-8 can hold the text; half a surrogate pair, as in a file name that is no text, it cannot."""
    return _LONE_SURROGATE.search(text) is None


def as_mapping(value: object, where: str) -> dict[str, object]:
    """Take an object with any members."""
    return value if isinstance(value, dict) else refuse(value, where, "an object")


def as_record(value: object, where: str, members: Collection[str]) -> dict[str, object]:
    """Take an object with exactly these members: a newer writer that adds one raises the version."""
    record = as_mapping(value, where)
    if record.keys() != set(members):
        missing, unknown = sorted(set(members) - record.keys()), sorted(record.keys() - set(members))
        raise FormatError(f"{where}: missing members {missing}, unknown members {reprlib.repr(unknown)}")
    return record


def as_list(value: object, where: str) -> list[object]:
    """Take a list."""
    return value if isinstance(value, list) else refuse(value, where, "a list")


def as_text(value: object, where: str) -> str:
    """Take a string."""
    return value if isinstance(value, str) else refuse(value, where, "a string")


def as_natural(value: object, where: str, below: int = LIMIT) -> int:
    """Take an integer from 0 to `below - 1`; `true` and `1.0` are none."""
    if type(value) is int and 0 <= value < below:
        return value
    return refuse(value, where, f"an integer from 0 to {below - 1}")


def as_naturals(value: object, where: str, at_most: int) -> tuple[int, ...]:
    """Take a list of at most `at_most` integers from 0 to `LIMIT - 1`."""
    items = as_list(value, where)
    if len(items) > at_most:
        raise FormatError(f"{where}: {len(items)} items, expected at most {at_most}")
    return tuple(as_natural(item, where) for item in items)


def refuse(value: object, where: str, expected: str) -> NoReturn:
    """Raise the `FormatError` for a value of the wrong kind; only its start is shown."""
    raise FormatError(f"{where}: expected {expected}, found {reprlib.repr(value)}")


def _dump(encoder: json.JSONEncoder, value: object) -> bytes:
    try:
        return encoder.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"cannot be written as JSON: {error}") from None


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise FormatError(f"member {twice!r:.99} stands twice")
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise FormatError(f"number {text:.99} is not finite")
    return number


def _no_constant(text: str) -> NoReturn:
    raise FormatError(f"{text} is no number in JSON")
