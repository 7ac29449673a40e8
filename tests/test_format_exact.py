"""Exact JSON: back comes what went in, or an error with its place."""

import collections
import enum
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptlab.errors import FormatError
from ckptlab.format.exact import ExactTensor, decode, encode

TEXTS = st.text() | st.sampled_from(["$", "$$", "$float", "$tuple"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS | st.binary()
TENSORS = st.builds(
    lambda values: ExactTensor("I16", (len(values),), struct.pack(f"<{len(values)}h", *values)), st.lists(st.integers(-9, 9))
)
KEYS = LEAVES | st.tuples(LEAVES, LEAVES)
VALUES = st.recursive(
    LEAVES | TENSORS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(TEXTS, inner) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


def with_types(value: Any) -> Any:
    """The value in a form in which 1, True and 1.0, or 0.0 and -0.0, are not equal, and dicts have no order."""
    if type(value) is dict:
        return "dict", sorted((repr(with_types(key)), repr(with_types(item))) for key, item in value.items())
    if type(value) in (list, tuple):
        return type(value).__name__, [with_types(item) for item in value]
    return type(value).__name__, repr(value)


@given(VALUES)
def test_what_is_decoded_is_what_was_encoded_in_value_and_type(value: object) -> None:
    data = encode(value)
    assert with_types(decode(data)) == with_types(value)
    assert encode(decode(data)) == data
    json.loads(data, parse_constant=pytest.fail)


@given(st.floats(width=64))
def test_every_float_comes_back_bit_for_bit_but_for_the_kind_of_nan(number: float) -> None:
    back = decode(encode([number]))
    assert isinstance(back, list)
    assert struct.pack("<d", back[0]) == struct.pack("<d", number) or (math.isnan(number) and math.isnan(back[0]))


def test_the_examples_of_the_format_have_these_bytes() -> None:
    learning_rate = ExactTensor("F32", (), np.float32(0.001).tobytes())
    state = {"betas": (0.9, 0.95), "$x": b"\0\1", "best": math.inf, "milestones": {1: "a"}, "lr": learning_rate}
    assert json.loads(encode(state)) == {
        "$$x": {"$bytes": "AAE="},
        "best": {"$float": "inf"},
        "betas": {"$tuple": [0.9, 0.95]},
        "lr": {"$tensor": {"dtype": "F32", "shape": [], "hex": "6f12833a"}},
        "milestones": {"$items": [[1, "a"]]},
    }
    assert encode({"b": [1], "a": "ö"}) == b'{\n "a": "\xc3\xb6",\n "b": [\n  1\n ]\n}\n'


def test_equal_dicts_give_equal_bytes_in_whatever_order_they_were_filled() -> None:
    assert encode({"b": 1, "a": 2}) == encode({"a": 2, "b": 1})
    assert encode({2: "x", 10: "y", (1,): "z"}) == encode({(1,): "z", 10: "y", 2: "x"})


class Colour(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value",
    [
        lambda epoch: 0.95,
        np.float64(1.0),
        np.int64(1),
        np.zeros(2),
        {1, 2},
        bytearray(b"a"),
        1j,
        Colour.RED,
        Point(1, 2),
        collections.OrderedDict(a=1),
        collections.Counter(a=1),
        "half \ud800",
        10**5000,
        {"half \ud800": 1},
        {10**5000: 1},
        ExactTensor("F32", (2,), b"1234"),
        ExactTensor("F33", (), b"1234"),
        ExactTensor("U8", (4097,), bytes(4097)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_come_back_as_it_was_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(FormatError, match=r"^state: scheduler\.lr_lambdas\[1\]"):
        encode({"scheduler": {"lr_lambdas": [None, value]}})


def test_a_value_inside_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(FormatError, match="inside itself"):
        encode(endless)


def test_the_deepest_value_that_is_written_can_be_read() -> None:
    value: object = "core"
    for _ in range(64):
        value = {(): value}
    assert decode(encode(value)) == value
    with pytest.raises(FormatError, match="deeper than 64"):
        encode([value])


HOSTILE = {
    "an unknown kind": b'{"$pickle": "gASV"}',
    "two kinds": b'{"$float": "inf", "$tuple": []}',
    "a kind beside a member": b'{"$tuple": [], "a": 1}',
    "a lone dollar": b'{"$": 1}',
    "a float in words": b'{"$float": "infinity"}',
    "a finite float in words": b'{"$float": "1.0"}',
    "a list as a float": b'{"$float": ["inf"]}',
    "a tuple of text": b'{"$tuple": "abc"}',
    "bytes in no base64": b'{"$bytes": "AA E="}',
    "bytes in half base64": b'{"$bytes": "a"}',
    "bytes in other letters": '{"$bytes": "ä"}'.encode(),
    "bytes as a number": b'{"$bytes": 5}',
    "items of three": b'{"$items": [[1, 2, 3]]}',
    "items of text": b'{"$items": ["ab"]}',
    "items in an object": b'{"$items": {"a": 1}}',
    "a list as a key": b'{"$items": [[[1], 2]]}',
    "a list inside a key": b'{"$items": [[{"$tuple": [[1]]}, 2]]}',
    "a key twice": b'{"$items": [[1, 2], [1, 3]]}',
    "keys that are equal": b'{"$items": [[1, 2], [true, 3]]}',
    "a tensor of the wrong size": b'{"$tensor": {"dtype": "F32", "shape": [2], "hex": "6f12833a"}}',
    "a tensor in capitals": b'{"$tensor": {"dtype": "F32", "shape": [], "hex": "6F12833A"}}',
    "a tensor with spaces": b'{"$tensor": {"dtype": "U8", "shape": [2], "hex": "6f 2"}}',
    "a tensor of 64 dims of 2**62": b'{"$tensor": {"dtype": "U8", "shape": ['
    + b", ".join([b"4611686018427387904"] * 64)
    + b'], "hex": ""}}',
    "a tensor of a million dims": b'{"$tensor": {"dtype": "U8", "shape": [' + b",".join([b"1"] * 10**6) + b'], "hex": "00"}}',
    "a tensor above 4 KiB": b'{"$tensor": {"dtype": "U8", "shape": [4097], "hex": "' + b"00" * 4097 + b'"}}',
    "a tensor without a dtype": b'{"$tensor": {"shape": [], "hex": ""}}',
    "a member twice": b'{"a": 1, "a": 2}',
    "65 lists": b"[" * 66 + b"]" * 66,
    "300 tuples": b'{"$tuple": [' * 300 + b"]}" * 300,
    "more than 64 MiB": b" " * (64 * 2**20) + b"1",
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_hostile_state_is_refused(why: str) -> None:
    with pytest.raises(FormatError, match=r"^state: "):
        decode(HOSTILE[why])


def test_a_state_that_no_reader_would_take_is_not_written() -> None:
    with pytest.raises(FormatError, match="expected at most 67108864"):
        encode("x" * 64 * 2**20)
