"""JSON of a hostile writer: what is not strict is refused, with the document's name in front."""

import pytest

from ckptlab.errors import FormatError
from ckptlab.format.strict_json import parse_json

HOSTILE = {
    "a member twice": b'{"a": 1, "a": 2}',
    "a member twice, once in escapes": b'{"a": 1, "\\u0061": 2}',
    "NaN": b"NaN",
    "minus infinity": b"[-Infinity]",
    "a number too large for a float": b"1e999",
    "an integer of a million digits": b"1" * 10**6,
    "half a letter": b'"\xc3"',
    "half a surrogate pair": b'"\\udC00"',
    "half a surrogate pair as a key": b'{"\\ud83d": 1}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a raw newline in text": b'"\n"',
    "text after the end": b"{} 1",
    "nothing": b"",
    "a million brackets": b"[" * 10**6,
    "a million lists": b"[" * 10**6 + b"]" * 10**6,
    "a million objects": b'{"a":' * 10**6,
    "a byte too many": b" " * (2 * 10**7) + b"1",
}


@pytest.mark.parametrize("why", HOSTILE)
def test_hostile_json_is_refused(why: str) -> None:
    with pytest.raises(FormatError, match=r"^state: "):
        parse_json(HOSTILE[why], "state", at_most=2 * 10**7)


def test_a_whole_surrogate_pair_in_escapes_is_one_letter() -> None:
    assert parse_json(b'"\\ud83d\\ude00"', "state", at_most=100) == "\U0001f600"
