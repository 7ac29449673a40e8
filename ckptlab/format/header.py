"""The safetensors header: 8 bytes of length, JSON, spaces; then the tensors' bytes without a gap to the end of the file.

Built from names, dtypes and shapes alone, so every rank derives the same bytes. Read strictly: what another writer made
is taken when safetensors itself takes it and every byte of the file is accounted for.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from ckptlab.errors import FormatError
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.strict_json import LIMIT, as_mapping, as_naturals, as_record, as_text, is_unicode, parse_json, refuse

DATA_ALIGNMENT = 4096  # in model/, optim/ and pieces/: pages for mmap and direct I/O
MAX_HEADER_BYTES = 100_000_000  # safetensors refuses more
MAX_DIMS = 64  # torch and NumPy stop here
MAX_NAME_LETTERS = 1024
METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a tensor is: its dtype by safetensors' name, and its global shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Count the bytes of all elements."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class HeaderEntry:
    """A tensor in a file: what it is, and where its bytes begin, counted from the start of the file."""

    spec: TensorSpec
    begin: int


def standing_order(item: tuple[str, TensorSpec]) -> tuple[int, str]:
    """Sort key of tensors in files: wide items first, so that each begins at a multiple of its item's size; then by name."""
    name, spec = item
    return -ITEM_BYTES[spec.dtype], name


def build_header(tensors: Mapping[str, TensorSpec], alignment: int) -> tuple[bytes, dict[str, int]]:
    """Build a file's header, padded so that data begins at a multiple of `alignment` bytes.

    Returns:
        The header, and where each tensor begins, counted from the start of the file.
    """
    entries: dict[str, object] = {METADATA: {"format": "pt"}}
    offsets, end = {}, 0
    for name, spec in sorted(tensors.items(), key=standing_order):
        check_tensor_name(name)
        offsets[name], end = end, end + spec.num_bytes
        entries[name] = {"dtype": spec.dtype, "shape": spec.shape, "data_offsets": [offsets[name], end]}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    length = len(text) + -(8 + len(text)) % alignment
    if length > MAX_HEADER_BYTES:
        raise FormatError(
            f"header of {length} bytes for {len(tensors)} tensors, expected at most {MAX_HEADER_BYTES}; write more files"
        )
    return length.to_bytes(8, "little") + text.ljust(length), {name: 8 + length + offset for name, offset in offsets.items()}


def header_bytes(first8: bytes) -> int:
    """Read from a file's first 8 bytes how many bytes its header takes, these 8 included."""
    length = int.from_bytes(first8, "little")
    if len(first8) != 8 or length > MAX_HEADER_BYTES:
        raise FormatError(f"header: begins with {first8[:16].hex()!r}, expected 8 bytes that hold at most {MAX_HEADER_BYTES}")
    return 8 + length


def parse_header(head: bytes, file_bytes: int) -> dict[str, HeaderEntry]:
    """Read a whole header (`header_bytes` long) of a file of `file_bytes`; tensors come in the order of their bytes."""
    if len(head) != header_bytes(head[:8]) or head[8:9] != b"{":
        raise FormatError(f"header: {len(head)} bytes, expected {header_bytes(head[:8])} with JSON that begins with '{{'")
    members = as_mapping(parse_json(head[8:], "header", MAX_HEADER_BYTES), "header")
    for key, text in as_mapping(members.pop(METADATA, {}), f"header: {METADATA}").items():
        as_text(text, f"header: {METADATA}: {key!r}")
    spans = sorted((_parse_span(name, value) for name, value in members.items()), key=lambda span: span[:2])
    entries, end = {}, 0
    for begin, stop, name, spec in spans:
        if begin != end:
            raise FormatError(
                f"header: {name!r}: begins at byte {begin} of the data, expected {end}: tensors overlap or leave a gap"
            )
        entries[name], end = HeaderEntry(spec, len(head) + begin), stop
    if len(head) + end != file_bytes:
        raise FormatError(f"header: tensors end at byte {len(head) + end}, expected the end of the file, {file_bytes}")
    return entries


def parse_spec(dtype: object, shape: object, where: str) -> TensorSpec:
    """Read a tensor's dtype and shape from parsed JSON."""
    name = as_text(dtype, f"{where}: dtype")
    if name not in ITEM_BYTES:
        refuse(dtype, f"{where}: dtype", f"one of {', '.join(ITEM_BYTES)}")
    spec = TensorSpec(name, as_naturals(shape, f"{where}: shape", MAX_DIMS))
    return spec if spec.num_bytes < LIMIT else refuse(shape, f"{where}: shape", "less than 2**63 bytes")


def check_tensor_name(name: str) -> None:
    """Refuse a name that safetensors cannot hold (its own member's, half a surrogate pair), or an endless one."""
    if name == METADATA or len(name) > MAX_NAME_LETTERS or not is_unicode(name):
        raise FormatError(f"tensor name {name!a:.99}: expected at most {MAX_NAME_LETTERS} letters of Unicode, not {METADATA!r}")


def _parse_span(name: str, value: object) -> tuple[int, int, str, TensorSpec]:
    where = f"header: {name!r}"
    record = as_record(value, where, ("dtype", "shape", "data_offsets"))
    spec = parse_spec(record["dtype"], record["shape"], where)
    offsets = as_naturals(record["data_offsets"], f"{where}: data_offsets", 2)
    if len(offsets) != 2 or offsets[1] - offsets[0] != spec.num_bytes:
        raise FormatError(
            f"{where}: data_offsets {list(offsets)}, expected {spec.num_bytes} bytes for {spec.dtype} {list(spec.shape)}"
        )
    return *offsets, name, spec
