"""The manifest: the example of the format's description, a hand-made one, and everything that one edit can do to them."""

import copy
import dataclasses
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptlab.errors import FormatError
from ckptlab.format.boxes import Box
from ckptlab.format.header import TensorSpec
from ckptlab.format.manifest import Manifest
from ckptlab.format.records import FileRecord, Piece, TensorRecord

# Two tensors with AdamW on two ranks: its files were real, and its sums come from zlib (format description, section 2).
EXAMPLE = """
{
 "format": "ckptlab",
 "version": 1,
 "step": 40,
 "parent": null,
 "block_bytes": 4194304,
 "files": {
  "model/model-00001-of-00001.safetensors": {"bytes": 264, "crc32": ["a4dae20e"]},
  "model/model.safetensors.index.json": {"bytes": 168, "crc32": ["8a26f82d"]},
  "optim/optim-00001-of-00001.safetensors": {"bytes": 696, "crc32": ["3a55e7b9"]},
  "optim/optim.safetensors.index.json": {"bytes": 437, "crc32": ["3ddba3e2"]},
  "ranks/rank-00000.json": {"bytes": 29, "crc32": ["9e03ef1f"]},
  "ranks/rank-00000.safetensors": {"bytes": 5168, "crc32": ["5b35a873"]},
  "ranks/rank-00001.json": {"bytes": 29, "crc32": ["9e03ef1f"]},
  "ranks/rank-00001.safetensors": {"bytes": 5168, "crc32": ["ff9c46c6"]},
  "state.json": {"bytes": 376, "crc32": ["f12f883b"]}
 },
 "tensors": {
  "model": {
   "embed.weight": {"dtype": "F32", "shape": [5, 4], "pieces": [
     {"file": "model/model-00001-of-00001.safetensors", "begin": 176, "offset": [0, 0], "shape": [5, 4]}]},
   "norm.weight": {"dtype": "BF16", "shape": [4], "pieces": [
     {"file": "model/model-00001-of-00001.safetensors", "begin": 256, "offset": [0], "shape": [4]}]}
  },
  "optim": {
   "exp_avg::embed.weight": {"dtype": "F32", "shape": [5, 4], "pieces": [
     {"file": "optim/optim-00001-of-00001.safetensors", "begin": 496, "offset": [0, 0], "shape": [5, 4]}]},
   "exp_avg::norm.weight": {"dtype": "F32", "shape": [4], "pieces": [
     {"file": "optim/optim-00001-of-00001.safetensors", "begin": 576, "offset": [0], "shape": [4]}]},
   "exp_avg_sq::embed.weight": {"dtype": "F32", "shape": [5, 4], "pieces": [
     {"file": "optim/optim-00001-of-00001.safetensors", "begin": 592, "offset": [0, 0], "shape": [5, 4]}]},
   "exp_avg_sq::norm.weight": {"dtype": "F32", "shape": [4], "pieces": [
     {"file": "optim/optim-00001-of-00001.safetensors", "begin": 672, "offset": [0], "shape": [4]}]},
   "step::embed.weight": {"dtype": "F32", "shape": [], "pieces": [
     {"file": "optim/optim-00001-of-00001.safetensors", "begin": 688, "offset": [], "shape": []}]},
   "step::norm.weight": {"dtype": "F32", "shape": [], "pieces": [
     {"file": "optim/optim-00001-of-00001.safetensors", "begin": 692, "offset": [], "shape": []}]}
  }
 },
 "aliases": {"head.weight": "embed.weight"},
 "saved_by": {"ckptlab": "1.0.0", "world_size": 2, "mesh": {"fsdp": 2}},
 "exact_if": {"torch": "2.13.0", "device": "cpu", "num_threads": 1, "deterministic_algorithms": true,
              "world_size": 2, "mesh": {"fsdp": 2}, "data": "sha256:4f1c…"},
 "crc32": "e553018d"
}
"""

# One tensor of 5 x 4 F32 in two files, one a writer, in blocks of 64 bytes; an empty tensor; a scalar.
BY_RANK: dict[str, Any] = {
    "format": "ckptlab",
    "version": 1,
    "step": 7,
    "parent": 3,
    "block_bytes": 64,
    "files": {
        "pieces/rank-00000.safetensors": {"bytes": 144, "crc32": ["00000000", "0000000a", "ffffffff"]},
        "pieces/rank-00001.safetensors": {"bytes": 140, "crc32": ["00000001", "0000000b", "0000000c"]},
        "state.json": {"bytes": 0, "crc32": []},
    },
    "tensors": {
        "model": {
            "none": {
                "dtype": "U8",
                "shape": [0, 9],
                "pieces": [{"file": "pieces/rank-00000.safetensors", "begin": 100, "offset": [0, 0], "shape": [0, 9]}],
            },
            "one": {
                "dtype": "I64",
                "shape": [],
                "pieces": [{"file": "pieces/rank-00001.safetensors", "begin": 132, "offset": [], "shape": []}],
            },
            "weight": {
                "dtype": "F32",
                "shape": [5, 4],
                "pieces": [
                    {"file": "pieces/rank-00000.safetensors", "begin": 96, "offset": [0, 0], "shape": [3, 4]},
                    {"file": "pieces/rank-00001.safetensors", "begin": 96, "offset": [3, 0], "shape": [2, 4]},
                ],
            },
        },
        "optim": {},
    },
    "aliases": {"head": "weight", "tail": "one"},
    "saved_by": {"world_size": 2},
    "exact_if": {"threads": 1, "größe": [0.5, None]},
}


def sealed(document: dict[str, Any]) -> bytes:
    """The bytes of a document with a true sum of itself, by the rule in the format's description."""
    body = {name: value for name, value in document.items() if name != "crc32"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return (json.dumps(body | {"crc32": f"{zlib.crc32(text.encode()):08x}"}, indent=1, ensure_ascii=False) + "\n").encode()


def test_the_example_of_the_format_is_read_and_written_again() -> None:
    manifest = Manifest.parse(EXAMPLE.encode())
    assert (manifest.step, manifest.parent, manifest.block_bytes) == (40, None, 4194304)
    assert manifest.files["state.json"] == FileRecord(376, (0xF12F883B,))
    assert manifest.tensors["optim"]["step::norm.weight"].spec == TensorSpec("F32", ())
    assert manifest.aliases == {"head.weight": "embed.weight"}
    assert manifest.saved_by["mesh"] == {"fsdp": 2}
    assert manifest.to_json() == (json.dumps(json.loads(EXAMPLE), indent=1, ensure_ascii=False) + "\n").encode()


def test_several_pieces_a_tensor_are_read_and_written_again() -> None:
    manifest = Manifest.parse(sealed(BY_RANK))
    pieces = (
        Piece("pieces/rank-00000.safetensors", 96, Box((0, 0), (3, 4))),
        Piece("pieces/rank-00001.safetensors", 96, Box((3, 0), (2, 4))),
    )
    assert manifest.tensors["model"]["weight"] == TensorRecord(TensorSpec("F32", (5, 4)), pieces)
    assert manifest.files["pieces/rank-00000.safetensors"].crc32 == (0, 10, 0xFFFFFFFF)
    assert manifest.parent == 3
    assert manifest.to_json() == sealed(BY_RANK)


def backwards(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {name: mapping[name] for name in sorted(mapping, reverse=True)}


def test_names_are_written_in_order_whatever_order_they_come_in() -> None:
    manifest = Manifest.parse(sealed(BY_RANK))
    tensors = {section: backwards(records) for section, records in manifest.tensors.items()}
    shuffled = dataclasses.replace(
        manifest,
        files=backwards(manifest.files),
        tensors=backwards(tensors),
        aliases=backwards(manifest.aliases),
    )
    assert shuffled.to_json() == sealed(BY_RANK)


def test_any_flipped_bit_and_any_missing_end_is_refused() -> None:
    data = sealed(BY_RANK)
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises(FormatError, match=r"^(manifest|file name|tensor name)"):
                Manifest.parse(bytes(flipped))
    for end in range(len(data) - 1):
        with pytest.raises(FormatError):
            Manifest.parse(data[:end])


def put(*path_and_value: Any) -> Callable[[dict[str, Any]], None]:
    """The edit that puts the last argument at the place that the others name."""
    *path, last, value = path_and_value

    def edit(document: Any) -> None:
        for name in path:
            document = document[name]
        document[last] = value

    return edit


def put_into_model_file(document: dict[str, Any]) -> None:
    document["files"]["model/x"] = {"bytes": 0, "crc32": []}
    piece = {"file": "model/x", "begin": 0, "offset": [0], "shape": [0]}
    document["tensors"]["optim"]["moved"] = {"dtype": "U8", "shape": [0], "pieces": [piece]}


def without(*path: Any) -> Callable[[dict[str, Any]], None]:
    def edit(document: Any) -> None:
        for name in path[:-1]:
            document = document[name]
        del document[path[-1]]

    return edit


ZERO, ONE = "pieces/rank-00000.safetensors", "pieces/rank-00001.safetensors"
FILE = ("files", ZERO)
WEIGHT = ("tensors", "model", "weight")
PIECE = (*WEIGHT, "pieces", 1)
HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "another format": (put("format", "orbax"), "format: expected 'ckptlab', found 'orbax'"),
    "a newer version": (put("version", 2), "version 2, expected 1"),
    "version 0": (put("version", 0), "version 0, expected 1"),
    "a version that is true": (put("version", True), "version: expected an integer"),
    "no version": (without("version"), "version: expected an integer"),
    "an unknown member": (put("codec", "zstd"), "unknown members .'codec'"),
    "a missing member": (without("aliases"), "missing members .'aliases'"),
    "an unknown member of a file": (put(*FILE, "sha256", ""), "unknown members .'sha256'"),
    "an unknown member of a tensor": (put(*WEIGHT, "layout", {}), "unknown members .'layout'"),
    "an unknown member of a piece": (put(*PIECE, "stride", 1), "unknown members .'stride'"),
    "a third section": (put("tensors", "extra", {}), "unknown members .'extra'"),
    "no optim": (without("tensors", "optim"), "missing members .'optim'"),
    "a negative step": (put("step", -1), "step: expected an integer"),
    "half a step": (put("step", 1.5), "step: expected an integer"),
    "a huge step": (put("step", 2**63), "step: expected an integer"),
    "a parent that is false": (put("parent", False), "parent: expected an integer"),
    "blocks of no bytes": (put("block_bytes", 0), "block_bytes: expected"),
    "blocks that no memory holds": (put("block_bytes", 2**40), "block_bytes: expected"),
    "a list of files": (put("files", []), "files: expected an object"),
    "a file above the step": (put("files", "../x", {"bytes": 0, "crc32": []}), "file name '../x'"),
    "an absolute file": (put("files", "/etc/passwd", {"bytes": 0, "crc32": []}), "file name '/etc/passwd'"),
    "a file in another folder": (put("files", "other/x", {"bytes": 0, "crc32": []}), "file name 'other/x'"),
    "the manifest as a file": (put("files", "manifest.json", {"bytes": 0, "crc32": []}), "file name 'manifest.json'"),
    "a sum too few": (put(*FILE, "crc32", ["00000000"] * 2), "2 sums, expected 3"),
    "a sum too many": (put(*FILE, "crc32", ["00000000"] * 4), "4 sums, expected 3"),
    "a sum for an empty file": (put("files", "state.json", "crc32", ["00000000"]), "1 sums, expected 0"),
    "a sum in capitals": (put(*FILE, "crc32", 0, "0000000A"), "expected 8 hexadecimal digits"),
    "a sum of 9 digits": (put(*FILE, "crc32", 0, "000000000"), "expected 8 hexadecimal digits"),
    "a sum that is a number": (put(*FILE, "crc32", 0, 0), "crc32: expected a string"),
    "a file of -1 bytes": (put(*FILE, "bytes", -1), "bytes: expected an integer"),
    "a file of 2**62 bytes": (put(*FILE, "bytes", 2**62), "3 sums, expected"),
    "tensors in a list": (put("tensors", "model", []), "model: expected an object"),
    "a tensor of text": (put("tensors", "model", "weight", "F32"), "'weight': expected an object"),
    "a tensor with safetensors' own name": (
        put("tensors", "model", "__metadata__", BY_RANK["tensors"]["model"]["none"]),
        "tensor name",
    ),
    "a tensor with an endless name": (put("tensors", "model", "x" * 10**6, BY_RANK["tensors"]["model"]["none"]), "tensor name"),
    "an unknown dtype": (put(*WEIGHT, "dtype", "F4"), "dtype: expected one of"),
    "a dtype in an object": (put(*WEIGHT, "dtype", {}), "dtype: expected a string"),
    "a shape with true": (put(*WEIGHT, "shape", [5, True]), "shape: expected an integer"),
    "a shape with a float": (put(*WEIGHT, "shape", [5, 4.0]), "shape: expected an integer"),
    "a shape whose product is huge": (put(*WEIGHT, "shape", [2**62] * 64), "shape: expected less than"),
    "a shape of 65 dims": (put(*WEIGHT, "shape", [1] * 65), "65 items, expected at most 64"),
    "a shape that grew": (put(*WEIGHT, "shape", [6, 4]), r"0 boxes hold element \[5, 0\]"),
    "a shape that shrank": (put(*WEIGHT, "shape", [4, 4]), "reaches outside"),
    "a dim more": (put(*WEIGHT, "shape", [5, 4, 1]), "reaches outside"),
    "no pieces": (put(*WEIGHT, "pieces", []), "0 boxes hold element"),
    "a piece too few": (without(*PIECE), r"0 boxes hold element \[3, 0\]"),
    "a piece twice": (put(*WEIGHT, "pieces", [*BY_RANK["tensors"]["model"]["weight"]["pieces"]] * 2), "2 boxes hold element"),
    "pieces that overlap": (put(*PIECE, "offset", [2, 0]), r"2 boxes hold element \[2, 0\]"),
    "a piece with a negative offset": (put(*PIECE, "offset", [-3, 0]), "offset: expected an integer"),
    "a piece with an offset too short": (put(*PIECE, "offset", [3]), "reaches outside"),
    "a piece with a huge offset": (put(*PIECE, "offset", [2**63 - 1, 0]), "reaches outside"),
    "a piece that begins before the file": (put(*PIECE, "begin", -1), "begin: expected an integer"),
    "a piece that ends after the file": (put(*PIECE, "begin", 109), "ends at byte 141 of pieces/rank-00001"),
    "a piece that begins far after the file": (put(*PIECE, "begin", 2**62), "ends at byte"),
    "a piece in bytes of another tensor": (put(*PIECE, "begin", 101), "'weight' and 'one' share byte 132"),
    "a piece in bytes of its own tensor": (put(*PIECE, "file", ZERO), "'weight' and 'weight' share byte 96"),
    "a piece in a file that is not listed": (put(*PIECE, "file", "pieces/rank-00002.safetensors"), "expected a listed file"),
    "a piece in the state": (put(*PIECE, "file", "state.json"), "expected a listed file in model/"),
    "a piece in a list": (put(*PIECE, "file", [ONE]), "file: expected a string"),
    "a tensor of optim in model": (put_into_model_file, "expected a listed file in optim/"),
    "an alias to nothing": (put("aliases", "head", "body"), "'head': expected a tensor of model"),
    "an alias to an alias": (put("aliases", "other", "head"), "'other': expected a tensor of model"),
    "an alias of a tensor": (put("aliases", "one", "weight"), "'one': expected a tensor of model"),
    "an alias to a list": (put("aliases", "head", ["weight"]), "'head': expected a string"),
    "an alias with an endless name": (put("aliases", "x" * 10**6, "weight"), "tensor name"),
    "conditions in a list": (put("exact_if", []), "exact_if: expected an object"),
    "an author in words": (put("saved_by", "me"), "saved_by: expected an object"),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_manifest_with_one_wrong_thing_and_a_true_sum_is_refused_for_that_thing(why: str) -> None:
    edit, message = HOSTILE[why]
    document = copy.deepcopy(BY_RANK)
    edit(document)
    with pytest.raises(FormatError, match=message):
        Manifest.parse(sealed(document))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        sealed(BY_RANK).replace(b'"step": 7', b'"step": 7, "step": 7'),
        sealed(BY_RANK).replace(b'"threads": 1', b'"threads": ' + b"[" * 900 + b"]" * 900),
        sealed(BY_RANK).rjust(64 * 2**20 + 1),
    ],
    ids=["nothing", "a list", "null", "a member twice", "900 lists", "65 MiB"],
)
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"^manifest: "):
        Manifest.parse(data)


def test_a_manifest_that_no_reader_would_take_is_not_written() -> None:
    manifest = Manifest.parse(sealed(BY_RANK))
    with pytest.raises(FormatError, match="expected at most 67108864"):
        dataclasses.replace(manifest, saved_by={"by": "x" * 64 * 2**20}).to_json()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-1, 200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for name, item in inner for place in ((*path, name), *places(item, (*path, name)))]


@given(st.lists(st.tuples(st.sampled_from(places(BY_RANK)), JSON), min_size=1, max_size=2))
def test_whatever_stands_in_whatever_place_it_is_refused_or_kept(edits: list[tuple[tuple[Any, ...], Any]]) -> None:
    document = copy.deepcopy(BY_RANK)
    for place, value in sorted(edits, key=lambda edit: -len(edit[0])):
        put(*place, value)(document)
    try:
        manifest = Manifest.parse(sealed(document))
    except FormatError:
        return
    assert Manifest.parse(manifest.to_json()) == manifest


def test_twenty_thousand_column_pieces_and_as_many_tensors_are_read_at_once() -> None:
    document = copy.deepcopy(BY_RANK)
    columns = [{"file": ZERO, "begin": at, "offset": [0, at], "shape": [1, 1]} for at in range(20_000)]
    document["aliases"] = {}
    document["files"][ZERO] = {"bytes": 20_000, "crc32": ["00000000"] * 313}
    model = {f"empty.{i}": {"dtype": "U8", "shape": [0], "pieces": []} for i in range(20_000)}
    document["tensors"]["model"] = model | {"weight": {"dtype": "U8", "shape": [1, 20_000], "pieces": columns}}
    assert len(Manifest.parse(sealed(document)).tensors["model"]["weight"].pieces) == 20_000
