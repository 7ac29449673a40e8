"""Exact JSON for `state.json` and `ranks/*.json`: what is written comes back equal and of the same types, or is refused.

Strings, integers, finite floats, booleans, `None`, lists and dicts with string keys stand as they are; anything else is an
object with one `$` member: `{"$float": "inf"}`, `{"$tuple": [0.9, 0.95]}`, `{"$bytes": "AAE="}`, `{"$items": [[1, "a"]]}` (a
dict with other keys), `{"$tensor": {"dtype": "F32", "shape": [], "hex": "6f12833a"}}`. A user's key that begins with `$` gets
a second one. A subclass (a NumPy float, an `OrderedDict`) would come back as its base, so it is refused.
"""

import base64
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import NoneType

from ckptlab.errors import FormatError
from ckptlab.format.header import parse_spec
from ckptlab.format.strict_json import as_record, as_text, check_size, dump_json, is_unicode, parse_json, refuse

MAX_STATE_BYTES = 64 * 2**20
MAX_TENSOR_BYTES = 4096  # a larger one belongs into a safetensors file
MAX_DEPTH = 64  # far from Python's recursion limit, so that any process can read what one could write
MAX_INTEGER_BITS = 4096  # Python neither prints nor reads more than 4,300 digits
TAGS = ("$float", "$tuple", "$bytes", "$items", "$tensor")

Path = tuple[str, ...]  # (".scheduler", ".lr_lambdas", "[0]"), each cut to 50 letters


@dataclass(frozen=True, slots=True)
class ExactTensor:
    """A tensor of at most 4 KiB inside a state, as `lr=torch.tensor(0.1)` has it; `data` is row-major, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


KINDS = {NoneType, bool, int, float, str, bytes, list, tuple, dict, ExactTensor}


def encode(value: object) -> bytes:
    """Write a state as JSON with sorted keys; an error says where, as `scheduler.lr_lambdas[0]`."""
    data = dump_json(_pack(value, ()))
    check_size(data, "state", MAX_STATE_BYTES)
    return data


def decode(data: bytes) -> object:
    """Read what `encode` wrote."""
    return _unpack(parse_json(data, "state", MAX_STATE_BYTES), ())


def _pack(value: object, path: Path) -> object:
    if len(path) > MAX_DEPTH:
        raise FormatError(f"state: {_show(path)}: nested deeper than {MAX_DEPTH} levels, or inside itself")
    if type(value) not in KINDS:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise FormatError(
            f"state: {_show(path)}: {kind} cannot be kept exactly; make it a plain number, str, bytes, list or dict, "
            f"or a parameter or buffer of the model"
        )
    match value:
        case int() if (bits := value.bit_length()) > MAX_INTEGER_BITS:
            raise FormatError(f"state: {_show(path)}: integer of {bits} bits, expected at most {MAX_INTEGER_BITS}")
        case str() if not is_unicode(value):
            raise FormatError(f"state: {_show(path)}: {value!a:.99} is not Unicode text; keep it as bytes")
        case float() if not math.isfinite(value):
            return {"$float": str(value)}
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case list():
            return _pack_all(value, path)
        case tuple():
            return {"$tuple": _pack_all(value, path)}
        case dict():
            return _pack_dict(value, path)
        case ExactTensor() if len(value.data) > MAX_TENSOR_BYTES:
            raise FormatError(
                f"state: {_show(path)}: a tensor of {len(value.data)} bytes, a state holds those of at most "
                f"{MAX_TENSOR_BYTES}; make it a parameter or buffer of the model"
            )
        case ExactTensor():
            packed: dict[str, object] = {"dtype": value.dtype, "shape": list(value.shape), "hex": value.data.hex()}
            _unpack_tensor(packed, path)  # what no reader would take is not written
            return {"$tensor": packed}
    return value


def _pack_all(values: Iterable[object], path: Path) -> list[object]:
    return [_pack(value, (*path, f"[{i}]")) for i, value in enumerate(values)]


def _pack_dict(value: dict[object, object], path: Path) -> dict[str, object]:
    names = {key: item for key, item in value.items() if type(key) is str}
    if len(names) < len(value):
        pairs = [[_pack(key, (*path, "[key]")), _pack(item, (*path, f"[{key!r:.50}]"))] for key, item in value.items()]
        return {"$items": sorted(pairs, key=lambda pair: dump_json(pair[0]))}  # equal dicts give equal bytes
    for name in names:
        _pack(name, path)
    doubled = ((f"${name}" if name.startswith("$") else name, name) for name in sorted(names))
    return {key: _pack(names[name], (*path, f".{name:.50}")) for key, name in doubled}


def _unpack(value: object, path: Path) -> object:
    if len(path) > MAX_DEPTH:
        raise FormatError(f"state: {_show(path)}: nested deeper than {MAX_DEPTH} levels")
    match value:
        case list():
            return _unpack_all(value, path)
        case dict() if any(key.startswith("$") and not key.startswith("$$") for key in value):
            return _unpack_tagged(value, path)
        case dict():
            return {key.removeprefix("$"): _unpack(item, (*path, f".{key:.50}")) for key, item in value.items()}
    return value


def _unpack_all(values: Iterable[object], path: Path) -> list[object]:
    return [_unpack(value, (*path, f"[{i}]")) for i, value in enumerate(values)]


def _unpack_tagged(value: dict[str, object], path: Path) -> object:
    match list(value.items()):
        case [("$float", "inf" | "-inf" | "nan" as text)]:
            return float(text)
        case [("$tuple", list(items))]:
            return tuple(_unpack_all(items, path))
        case [("$bytes", str(text))]:
            with suppress(ValueError):
                return base64.b64decode(text, validate=True)
        case [("$items", list(pairs))] if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            return _unpack_items(pairs, path)
        case [("$tensor", tensor)]:
            return _unpack_tensor(tensor, path)
    refuse(value, f"state: {_show(path)}", f"one of {', '.join(TAGS)} alone, with a value of its kind")


def _unpack_items(pairs: list[tuple[object, object]], path: Path) -> dict[object, object]:
    keys = [_unpack(key, (*path, "[key]")) for key, _ in pairs]
    items = [_unpack(item, (*path, f"[{key!r:.50}]")) for key, (_, item) in zip(keys, pairs, strict=True)]
    try:
        unpacked = dict(zip(keys, items, strict=True))
    except TypeError as error:
        raise FormatError(f"state: {_show(path)}: $items: a list or dict cannot be a key ({error})") from None
    if len(unpacked) < len(pairs):
        raise FormatError(f"state: {_show(path)}: $items: a key stands twice")
    return unpacked


def _unpack_tensor(value: object, path: Path) -> ExactTensor:
    where = f"state: {_show(path)}: $tensor"
    record = as_record(value, where, ("dtype", "shape", "hex"))
    spec, text = parse_spec(record["dtype"], record["shape"], where), as_text(record["hex"], f"{where}: hex")
    if spec.num_bytes > MAX_TENSOR_BYTES or not re.fullmatch(f"(?:[0-9a-f]{{2}}){{{spec.num_bytes}}}", text):
        refuse(text, f"{where}: hex", f"{spec.num_bytes} bytes, at most {MAX_TENSOR_BYTES}, as hexadecimal digits")
    return ExactTensor(spec.dtype, spec.shape, bytes.fromhex(text))


def _show(path: Path) -> str:
    return "".join(path).removeprefix(".") or "(top)"
