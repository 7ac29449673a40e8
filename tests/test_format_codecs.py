"""Codecs: exact ones give back every bit, int8 stays within its scale, and no frame takes more memory than it may."""

import copy
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from test_format_manifest import BY_RANK, put, sealed

from ckptlab.errors import FormatError
from ckptlab.format.codecs import BLOCK_ITEMS, FLOATING, INT8, PLANES, XOR, decode, encode, scales
from ckptlab.format.dtypes import ITEM_BYTES, numpy_dtype
from ckptlab.format.manifest import Manifest

NAN_WITH_PAYLOAD = bytes.fromhex("efbeadff")  # little-endian F32
DTYPES = st.sampled_from(sorted(ITEM_BYTES))


@given(DTYPES, st.integers(0, 300), st.randoms(use_true_random=False), st.booleans())
def test_exact_codecs_give_back_every_bit_of_every_dtype(dtype: str, num_items: int, random: Any, near: bool) -> None:
    num_bytes = num_items * ITEM_BYTES[dtype]
    raw = (NAN_WITH_PAYLOAD + random.randbytes(num_bytes))[:num_bytes]
    base = bytes(byte ^ (random.random() < 0.1) for byte in raw) if near else random.randbytes(num_bytes)
    for codec, against in ((PLANES, None), (XOR, base)):
        stored = encode(codec, raw, dtype, against)
        assert stored is not None
        assert bytes(decode(codec, stored, dtype, num_bytes, base=against)) == raw


def test_a_frame_that_is_decoded_against_other_bytes_is_refused() -> None:
    raw, base = bytes(range(64)), bytes(64)
    stored = encode(XOR, raw, "F32", base)
    with pytest.raises(FormatError, match="decodes to bytes with crc32"):
        decode(XOR, stored, "F32", 64, base=b"\1" + base[1:])


@given(
    st.sampled_from(FLOATING),
    st.lists(st.floats(-1e4, 1e4, width=16) | st.floats(0, 1e-6) | st.just(0.0), min_size=1, max_size=400),
    st.booleans(),
)
@settings(max_examples=100)
def test_int8_stays_within_the_scale_of_its_block_and_makes_no_divisor_zero(
    dtype: str, values: list[float], positive: bool
) -> None:
    with np.errstate(all="ignore"):
        before = np.abs(np.array(values)) if positive else np.array(values)
        array = before.astype(numpy_dtype(dtype))
    raw = array.tobytes()
    stored = encode(INT8, raw, dtype)
    assert stored is not None
    after = np.frombuffer(decode(INT8, stored, dtype, len(raw), BLOCK_ITEMS), array.dtype).astype("f8")
    before = array.astype("f8")
    scale = np.repeat(scales(raw, dtype).astype("f8"), BLOCK_ITEMS)[: len(before)]
    smallest = np.finfo("f4").smallest_subnormal if dtype in ("F32", "F64", "BF16") else 0.0
    assert (np.abs(before - after) <= scale * 1.01 + smallest).all()
    if positive and dtype in ("F32", "F64"):
        assert ((after > 0) == (before > 0)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", FLOATING)
def test_int8_does_not_take_what_it_has_no_code_for(dtype: str, value: float) -> None:
    array = np.ones(200)
    array[150] = value
    assert encode(INT8, array.astype(numpy_dtype(dtype)).tobytes(), dtype) is None


def frame(plane: bytes) -> bytes:
    """Return a frame that says that it is `RAW`, of items of one byte."""
    return zlib.crc32(RAW).to_bytes(4, "little") + len(plane).to_bytes(4, "little") + plane


def blocks(body: bytes) -> bytes:
    return zlib.crc32(RAW).to_bytes(4, "little") + body


def zstd(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


RAW, BOMB = bytes(4096), zstd(bytes(1 << 28))
LIAR = BOMB.replace((1 << 28).to_bytes(4, "little"), (4096).to_bytes(4, "little"), 1)  # in its header
HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "a bomb": (PLANES, frame(BOMB), "frame of 268435456 bytes, expected 4096"),
    "a bomb that says it is small": (PLANES, frame(LIAR), "not a whole zstd frame"),
    "a bomb that does not say its size": (PLANES, frame(zstd(bytes(1 << 28), write_content_size=False)), "expected 4096"),
    "fewer bytes": (PLANES, frame(zstd(RAW[4:])), "frame of 4092 bytes"),
    "a frame that is cut": (PLANES, frame(zstd(RAW)[:-3]), "not a whole zstd frame"),
    "a frame that is cut, and says more": (PLANES, frame(zstd(RAW))[:-3], "not a whole zstd frame"),
    "a frame and more in it": (PLANES, frame(zstd(RAW) + b"more"), "not a whole zstd frame"),
    "a frame and more behind it": (PLANES, frame(zstd(RAW)) + b"more", "1 planes end at byte"),
    "two frames": (PLANES, frame(zstd(RAW) * 2), "not a whole zstd frame"),
    "garbage": (PLANES, b"garbage, and no frame at all", "not a whole zstd frame"),
    "nothing": (PLANES, b"", "not a whole zstd frame"),
    "other values": (PLANES, frame(zstd(b"\1" + RAW[1:])), "decodes to bytes with crc32"),
    "other values, as they are": (PLANES, frame(b"\1" + RAW[1:]), "decodes to bytes with crc32"),
    "no base": (XOR, frame(zstd(RAW)), "stored against one of 0"),
    "int8 that is cut": (INT8, blocks(bytes(1055)), "int8 frame of 1055 bytes, expected 1056"),
    "int8 that is longer": (INT8, blocks(bytes(1 << 20)), "int8 frame of 1048576 bytes"),
    "int8 of nothing": (INT8, b"", "int8 frame of 0 bytes"),
    "int8 with a scale that is no number": (INT8, blocks(b"\xff" * 1056), "decodes to bytes with crc32"),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_hostile_frame_is_refused_for_what_it_is_and_never_taken_into_memory(why: str) -> None:
    codec, stored, words = HOSTILE[why]
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=words):
            decode(codec, stored, "F32" if codec == INT8 else "U8", len(RAW), BLOCK_ITEMS)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


GOOD = {"name": PLANES, "frame_bytes": 32, "stored_bytes": [30, 10, 8]}  # of 80 bytes
PIECE = {"file": "pieces/rank-00000.safetensors", "begin": 96, "offset": [0, 0], "shape": [5, 4]}
ELSEWHERE, HALVES = {**PIECE, "file": "pieces/rank-00001.safetensors"}, BY_RANK["tensors"]["model"]["weight"]["pieces"]
NO_FRAMES = {**GOOD, "stored_bytes": []}
WEIGHT = {"dtype": "F32", "shape": [5, 4], "pieces": [PIECE], "codec": GOOD}


def tensor(**members: Any) -> Callable[[dict[str, Any]], None]:
    return put("tensors", "model", "weight", {**WEIGHT, **members})


def codec(**members: Any) -> Callable[[dict[str, Any]], None]:
    return tensor(codec={name: value for name, value in {**GOOD, **members}.items() if value is not None})


def in_model(document: dict[str, Any]) -> None:
    document["files"]["model/x"] = {"bytes": 144, "crc32": ["00000000"] * 3}
    tensor(pieces=[{**PIECE, "file": "model/x"}])(document)


def without_parent(document: dict[str, Any]) -> None:
    codec(name=XOR)(document)
    document["parent"] = None


def its_own_parent(document: dict[str, Any]) -> None:
    codec(name=XOR)(document)
    document["parent"] = 7


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "an unknown codec": (codec(name="lzma"), "expected one of planes"),
    "a codec without a name": (codec(name=None), "name: expected a string"),
    "a codec in words": (tensor(codec=PLANES), "codec: expected an object"),
    "an unknown member": (codec(level=3), "unknown members .'level'"),
    "a frame too few": (codec(stored_bytes=[30, 18]), "2 frames, expected 3"),
    "a frame too many": (codec(stored_bytes=[12] * 4), "4 frames, expected 3"),
    "a frame larger than what it holds": (codec(stored_bytes=[10, 10**6, 8]), "stored_bytes: expected an integer"),
    "half an item in a frame": (codec(frame_bytes=30), "frame_bytes: expected a multiple of 4"),
    "frames of nothing": (codec(frame_bytes=0), "frame_bytes: expected a multiple"),
    "a frame that no memory holds": (codec(frame_bytes=1 << 40), "frame_bytes: expected an integer"),
    "frames beyond the file": (codec(stored_bytes=[30, 10, 9]), "ends at byte 145"),
    "frames in another tensor": (tensor(pieces=[ELSEWHERE], codec={**GOOD, "stored_bytes": [30, 6, 1]}), "share byte 132"),
    "an encoded tensor in model/": (in_model, "listed file in pieces/"),
    "an encoded tensor in two pieces": (tensor(pieces=HALVES), "2 pieces, expected one"),
    "an empty tensor with a codec": (put("tensors", "model", "none", "codec", NO_FRAMES), "0 frames, expected none at all"),
    "a delta against nothing": (without_parent, "parent: expected a step before 7"),
    "a delta against itself": (its_own_parent, "parent: expected a step before 7"),
    "int8 without blocks": (codec(name=INT8), "missing members .'block'"),
    "int8 in tiny blocks": (codec(name=INT8, block=1), "blocks of 1 F32"),
    "int8 of integers": (tensor(dtype="I32", codec={**GOOD, "name": INT8, "block": 16}), "blocks of 16 I32"),
    "int8 with half a block in a frame": (codec(name=INT8, block=16, frame_bytes=32), "frame_bytes: expected a multiple of 64"),
}


def test_a_manifest_with_a_codec_is_read_and_written_again() -> None:
    for edit in (codec(), codec(name=XOR), codec(name=INT8, block=16, frame_bytes=64, stored_bytes=[20, 8])):
        document = copy.deepcopy(BY_RANK)
        edit(document)
        manifest = Manifest.parse(sealed(document))
        assert manifest.to_json() == sealed(document)
    assert (manifest.base, manifest.inexact) == (None, ["weight"])


@pytest.mark.parametrize("why", MANIFESTS)
def test_a_manifest_whose_codec_cannot_be_is_refused_for_that(why: str) -> None:
    edit, message = MANIFESTS[why]
    document = copy.deepcopy(BY_RANK)
    edit(document)
    with pytest.raises(FormatError, match=message):
        Manifest.parse(sealed(document))
