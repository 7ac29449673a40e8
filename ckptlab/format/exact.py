"""Exact JSON for `state.json` and `ranks/*.json`: what is written comes back equal and of the same types, or is refused.

Strings, integers, finite floats, booleans, `None`, lists and dicts with string keys stand as they are; anything else is an
object with one `$` member: `{"$float": "inf"}`, `{"$tuple": [0.9, 0.95]}`, `{"$bytes": "AAE="}`, `{"$items": [[1, "a"]]}` (a
dict with other keys), `{"$tensor": {"dtype": "F32", "shape": [], "hex": "6f12833a"}}`. A user's key that begins with `$` gets
a second one. A subclass (a NumPy float, an `OrderedDict`) would come back as its base, so it is refused.
"""

import base64
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ckptlab.errors import FormatError
from ckptlab.format.header import parse_spec
from ckptlab.format.strict_json import as_list, as_record, as_text, check_size, dump_json, is_unicode, parse_json, refuse

MAX_STATE_BYTES = 64 * 2**20
MAX_TENSOR_BYTES = 4096  # a larger one belongs into a safetensors file
MAX_DEPTH = 64  # far from Python's recursion limit, so that any process can read what one could write
MAX_INTEGER_BITS = 4096  # Python neither prints nor reads more than 4,300 digits
MAX_SAME_HASH = 16  # more keys with one hash are made to collide: a dict of them takes time quadratic in their number

Path = tuple[str, ...]  # (".scheduler", ".lr_lambdas", "[0]"), each cut to 50 letters


@dataclass(frozen=True, slots=True)
class ExactTensor:
    """A tensor of at most 4 KiB inside a state, as `lr=torch.tensor(0.1)` has it; `data` is row-major, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


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
    if type(value) not in _PACKERS:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise FormatError(
            f"state: {_show(path)}: {kind} cannot be kept exactly; make it a plain number, str, bytes, list or dict"
        )
    return _PACKERS[type(value)](value, path)


def _pack_same(value: bool | None, path: Path) -> object:
    return value


def _pack_int(value: int, path: Path) -> int:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise FormatError(f"state: {_show(path)}: integer of {value.bit_length()} bits, expected at most {MAX_INTEGER_BITS}")
    return value


def _pack_float(value: float, path: Path) -> object:
    return value if math.isfinite(value) else {"$float": str(value)}


def _pack_bytes(value: bytes, path: Path) -> object:
    return {"$bytes": base64.b64encode(value).decode()}


def _pack_tuple(value: tuple[object, ...], path: Path) -> object:
    return {"$tuple": _pack_all(value, path)}


def _pack_text(text: str, path: Path) -> str:
    if not is_unicode(text):
        raise FormatError(f"state: {_show(path)}: {text!a:.99} is not Unicode text; keep it as bytes")
    return text


def _pack_all(values: Iterable[object], path: Path) -> list[object]:
    return [_pack(value, (*path, f"[{i}]")) for i, value in enumerate(values)]


def _pack_dict(value: dict[Any, object], path: Path) -> dict[str, object]:
    if not all(type(key) is str for key in value):
        pairs = [[_pack(key, (*path, "[key]")), _pack(item, (*path, f"[{key!r:.50}]"))] for key, item in value.items()]
        return {"$items": sorted(pairs, key=lambda pair: dump_json(pair[0]))}  # equal dicts give equal bytes
    packed = {_pack_text(key, path): _pack(item, (*path, f".{key:.50}")) for key, item in sorted(value.items())}
    return {f"${key}" if key.startswith("$") else key: item for key, item in packed.items()}


def _pack_tensor(tensor: ExactTensor, path: Path) -> dict[str, object]:
    packed: dict[str, object] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "hex": tensor.data.hex()}
    _unpack_tensor(packed, path)  # what no reader would take is not written
    return {"$tensor": packed}


def _unpack(value: object, path: Path) -> object:
    if len(path) > MAX_DEPTH:
        raise FormatError(f"state: {_show(path)}: nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list):
        return _unpack_all(value, path)
    return _unpack_dict(value, path) if isinstance(value, dict) else value


def _unpack_all(values: Iterable[object], path: Path) -> list[object]:
    return [_unpack(value, (*path, f"[{i}]")) for i, value in enumerate(values)]


def _unpack_dict(value: dict[str, object], path: Path) -> object:
    tags = [key for key in value if key.startswith("$") and not key.startswith("$$")]
    if not tags:
        return {key.removeprefix("$"): _unpack(item, (*path, f".{key:.50}")) for key, item in value.items()}
    if len(value) > 1 or tags[0] not in _UNPACKERS:
        refuse(list(value), f"state: {_show(path)}", f"one of {', '.join(_UNPACKERS)} alone")
    return _UNPACKERS[tags[0]](value[tags[0]], path)


def _unpack_float(value: object, path: Path) -> float:
    where = f"state: {_show(path)}: $float"
    text = as_text(value, where)
    return float(text) if text in ("inf", "-inf", "nan") else refuse(value, where, "inf, -inf or nan")


def _unpack_tuple(value: object, path: Path) -> tuple[object, ...]:
    return tuple(_unpack_all(as_list(value, f"state: {_show(path)}: $tuple"), path))


def _unpack_bytes(value: object, path: Path) -> bytes:
    where = f"state: {_show(path)}: $bytes"
    try:
        return base64.b64decode(as_text(value, where), validate=True)
    except ValueError:
        refuse(value, where, "base64")


def _unpack_items(value: object, path: Path) -> dict[object, object]:
    where = f"state: {_show(path)}: $items"
    pairs = [as_list(pair, where) for pair in as_list(value, where)]
    if any(len(pair) != 2 for pair in pairs):
        refuse(value, where, "pairs of key and value")
    keys = [_unpack(key, (*path, "[key]")) for key, _ in pairs]
    _check_keys(keys, where)
    return {key: _unpack(item, (*path, f"[{key!r:.50}]")) for key, (_, item) in zip(keys, pairs, strict=True)}


def _check_keys(keys: list[object], where: str) -> None:
    try:
        hashes = Counter(map(hash, keys))
    except TypeError as error:
        raise FormatError(f"{where}: a list or dict cannot be a key ({error})") from None
    if max(hashes.values(), default=0) > MAX_SAME_HASH or len(set(keys)) < len(keys):
        raise FormatError(f"{where}: a key stands twice, or too many keys share a hash")


def _unpack_tensor(value: object, path: Path) -> ExactTensor:
    where = f"state: {_show(path)}: $tensor"
    record = as_record(value, where, ("dtype", "shape", "hex"))
    spec, text = parse_spec(record["dtype"], record["shape"], where), as_text(record["hex"], f"{where}: hex")
    if spec.num_bytes > MAX_TENSOR_BYTES or not re.fullmatch(f"(?:[0-9a-f]{{2}}){{{spec.num_bytes}}}", text):
        refuse(text, f"{where}: hex", f"{spec.num_bytes} bytes, at most {MAX_TENSOR_BYTES}, as hexadecimal digits")
    return ExactTensor(spec.dtype, spec.shape, bytes.fromhex(text))


def _show(path: Path) -> str:
    return "".join(path).removeprefix(".") or "(top)"


_PACKERS: dict[type, Callable[[Any, Path], object]] = {
    type(None): _pack_same,
    bool: _pack_same,
    int: _pack_int,
    float: _pack_float,
    str: _pack_text,
    bytes: _pack_bytes,
    list: _pack_all,
    tuple: _pack_tuple,
    dict: _pack_dict,
    ExactTensor: _pack_tensor,
}
_UNPACKERS: dict[str, Callable[[object, Path], object]] = {
    "$float": _unpack_float,
    "$tuple": _unpack_tuple,
    "$bytes": _unpack_bytes,
    "$items": _unpack_items,
    "$tensor": _unpack_tensor,
}
