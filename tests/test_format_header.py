"""Headers and files against safetensors' own reader and writer."""

import json
import math

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from ckptlab.errors import FormatError
from ckptlab.format.dtypes import ITEM_BYTES, numpy_dtype
from ckptlab.format.files import index_json, lay_out
from ckptlab.format.header import DATA_ALIGNMENT, TensorSpec, build_header, header_bytes, parse_header

SPECS = st.builds(TensorSpec, st.sampled_from(sorted(ITEM_BYTES)), st.lists(st.integers(0, 4), max_size=3).map(tuple))
TORCH_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "C64": torch.complex64,
    "F64": torch.float64,
    "I64": torch.int64,
    "U64": torch.uint64,
}


def safetensors_reads(file: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    views = safetensors.deserialize(file)  # type: ignore[no-untyped-call]  # safetensors has no types
    return {name: (view["dtype"], tuple(view["shape"]), bytes(view["data"])) for name, view in views}


def written(header: dict[str, object] | bytes, num_bytes: int = 0) -> tuple[bytes, int]:
    """A header with this JSON, and the size of a file with `num_bytes` of data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text, 8 + len(text) + num_bytes


@given(st.dictionaries(st.text(max_size=8), SPECS, max_size=6), st.sampled_from([8, 64, DATA_ALIGNMENT]))
def test_safetensors_reads_every_tensor_where_the_header_says_it_begins(specs: dict[str, TensorSpec], alignment: int) -> None:
    header, begins = build_header(specs, alignment)
    random = np.random.default_rng(0)
    data = {name: random.bytes(math.prod(spec.shape) * ITEM_BYTES[spec.dtype]) for name, spec in specs.items()}
    file = bytearray(header + bytes(sum(map(len, data.values()))))
    for name, begin in begins.items():
        file[begin : begin + len(data[name])] = data[name]
    assert safetensors_reads(bytes(file)) == {name: (spec.dtype, spec.shape, data[name]) for name, spec in specs.items()}
    assert len(header) % alignment == 0
    assert all(begins[name] % ITEM_BYTES[spec.dtype] == 0 for name, spec in specs.items())
    assert header_bytes(header[:8]) == len(header)
    entries = parse_header(header, len(file))
    assert {name: (entry.spec, entry.begin) for name, entry in entries.items()} == {n: (specs[n], begins[n]) for n in specs}


@pytest.mark.parametrize("name", sorted(ITEM_BYTES))
def test_each_dtype_has_the_bytes_that_torch_and_safetensors_give_it(name: str) -> None:
    bits = torch.arange(256).to(torch.uint8)
    tensor = bits.view(TORCH_DTYPES[name]) if name != "BOOL" else bits % 2 == 0
    file = safetensors.torch.save({"x": tensor})
    entry = parse_header(file[: header_bytes(file[:8])], len(file))["x"]
    assert entry.spec == TensorSpec(name, tuple(tensor.shape))
    array = np.frombuffer(file, numpy_dtype(name), tensor.numel(), entry.begin)
    values = tensor.to(torch.float32 if "F8" in name else tensor.dtype).to(torch.complex128)
    np.testing.assert_array_equal(array.astype("c16"), values.numpy())


def test_the_table_of_dtypes_is_all_that_safetensors_and_torch_share_in_whole_bytes() -> None:
    assert set(TORCH_DTYPES) == set(ITEM_BYTES) >= set(safetensors.torch._TYPES)
    assert {name: dtype.itemsize for name, dtype in TORCH_DTYPES.items()} == ITEM_BYTES


def u8(size: object, begin: int, end: int) -> dict[str, object]:
    return {"dtype": "U8", "shape": [size], "data_offsets": [begin, end]}


HOSTILE = {
    "a gap": written({"a": u8(2, 1, 3)}, 3),
    "an overlap": written({"a": u8(2, 0, 2), "b": u8(2, 1, 3)}, 3),
    "bytes after the last tensor": written({"a": u8(2, 0, 2)}, 3),
    "a file that ends early": written({"a": u8(2, 0, 2)}, 1),
    "offsets that are not the shape's": written({"a": u8(3, 0, 2)}, 2),
    "offsets that go backwards": written({"a": u8(0, 2, 0)}, 2),
    "one offset": written({"a": {"dtype": "U8", "shape": [0], "data_offsets": [0]}}),
    "three offsets": written({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2, 2]}}, 2),
    "a negative size": written({"a": {"dtype": "U8", "shape": [-1, -2], "data_offsets": [0, 2]}}, 2),
    "a float as a size": written({"a": {"dtype": "U8", "shape": [2.0], "data_offsets": [0, 2]}}, 2),
    "a boolean as a size": written({"a": u8(True, 0, 1)}, 1),
    "a huge size": written({"a": {"dtype": "U8", "shape": [2**63], "data_offsets": [0, 2**63]}}, 2),
    "sizes whose product is huge": written({"a": {"dtype": "U8", "shape": [2**32, 2**32], "data_offsets": [0, 2**62]}}, 2),
    "more dims than torch has": written({"a": {"dtype": "U8", "shape": [1] * 65, "data_offsets": [0, 1]}}, 1),
    "a dtype of half bytes": written({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, 1),
    "a dtype that is a list": written({"a": {"dtype": ["U8"], "shape": [2], "data_offsets": [0, 2]}}, 2),
    "an unknown member": written({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2], "codec": "zstd"}}, 2),
    "a missing member": written({"a": {"dtype": "U8", "data_offsets": [0, 2]}}, 2),
    "a number for a tensor": written({"a": 1}),
    "metadata that is not text": written({"__metadata__": {"format": 1}}),
    "metadata that is null": written(b'{"__metadata__":null}'),
    "a name twice": written(f'{{"a":{json.dumps(u8(0, 0, 0))},"a":{json.dumps(u8(0, 0, 0))}}}'.encode()),
    "a list": written(b"[]"),
    "a space before the JSON": written(b" {}"),
    "nothing": (b"", 0),
    "seven bytes": (b"\2\0\0\0\0\0\0", 7),
    "no JSON": (bytes(8), 8),
    "a length beyond the header": (b"\3\0\0\0\0\0\0\0{}", 10),
    "a length of 16 EiB": (b"\xff" * 8 + b"{}", 10),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_hostile_header_is_refused(why: str) -> None:
    with pytest.raises(FormatError, match="header: "):
        parse_header(*HOSTILE[why])


@pytest.mark.parametrize("first8", [b"", b"\2\0\0\0\0\0\0", (10**8 + 1).to_bytes(8, "little"), b"\xff" * 8, bytes(9)])
def test_a_length_that_no_header_has_is_refused_before_anything_is_read(first8: bytes) -> None:
    with pytest.raises(FormatError, match="header: "):
        header_bytes(first8)


GOOD = safetensors.torch.save({"weight": torch.zeros(3, 2), "bias": torch.zeros(3, dtype=torch.int8)}, {"format": "pt"})
HEADER_BYTES = header_bytes(GOOD[:8])


@given(st.lists(st.tuples(st.integers(0, HEADER_BYTES - 3), st.binary(max_size=2)), min_size=1, max_size=3))
def test_an_edited_header_is_refused_or_one_that_safetensors_takes_too(edits: list[tuple[int, bytes]]) -> None:
    edited = bytearray(GOOD)
    for at, data in edits:
        edited[at : at + len(data)] = data
    file = bytes(edited)
    try:
        names = parse_header(file[:HEADER_BYTES], len(file)).keys()
    except FormatError:
        return
    assert names == safetensors_reads(file).keys()


@pytest.mark.parametrize("name", ["__metadata__", "half \ud800", "x" * 2000])
def test_a_name_that_the_format_cannot_hold_is_refused_before_it_is_written(name: str) -> None:
    with pytest.raises(FormatError, match="tensor name"):
        build_header({name: TensorSpec("U8", (1,))}, 8)


def test_files_are_filled_in_order_and_hugging_face_finds_every_tensor_by_the_index() -> None:
    specs = {f"layer.{i}": TensorSpec("F32", (50, i)) for i in range(12)} | {
        "half": TensorSpec("BF16", (7,)),
        "one": TensorSpec("I64", ()),
    }
    layouts = lay_out("model", specs, max_file_bytes=2000)
    first_five = [["one", "layer.0", "layer.1"], ["layer.10"], ["layer.11"], ["layer.2", "layer.3", "layer.4"], ["layer.5"]]
    assert [[*layout.begins] for layout in layouts][:5] == first_five
    assert [layout.name for layout in layouts][::8] == [f"model/model-0000{number}-of-00009.safetensors" for number in (1, 9)]
    index = json.loads(index_json(layouts, specs))
    found: dict[str, str] = {}
    total = 0
    for layout in layouts:
        tensors = safetensors.torch.load(layout.header + bytes(layout.file_bytes - len(layout.header)))
        assert len(tensors) == 1 or sum(tensor.nbytes for tensor in tensors.values()) <= 2000
        total += sum(tensor.nbytes for tensor in tensors.values())
        found |= dict.fromkeys(tensors, layout.name.removeprefix("model/"))
    assert index == {"metadata": {"total_size": total}, "weight_map": found}
    assert [*index["weight_map"]] == sorted(specs)
    assert lay_out("optim", {}, max_file_bytes=1) == []


def test_a_file_is_full_when_the_next_tensor_would_go_beyond_the_limit() -> None:
    specs = {name: TensorSpec("U8", (50,)) for name in "abc"}
    assert [[*layout.begins] for layout in lay_out("model", specs, max_file_bytes=100)] == [["a", "b"], ["c"]]
    assert [[*layout.begins] for layout in lay_out("model", specs, max_file_bytes=99)] == [["a"], ["b"], ["c"]]


def test_one_writer_fills_each_file_up() -> None:
    specs = {name: TensorSpec("U8", (20_000_000,)) for name in "abcd"}
    assert [[*layout.begins] for layout in lay_out("model", specs, 60_000_000)] == [["a"], ["b"], ["c"], ["d"]]
    assert [[*layout.begins] for layout in lay_out("model", specs, 60_000_000, spread=False)] == [["a", "b", "c"], ["d"]]
