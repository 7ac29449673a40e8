"""One archive as `torch.save` writes it, a zip without compression, from byte `begin` of a file on: read without torch.load.

Plain values come out as they are and tensors as a description of where their bytes lie, so that they can be read part by part
into any place. Every size is checked against the file before memory is taken, and the zip's own CRC-32s are compared.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from reprlib import repr as short
from types import MappingProxyType
from typing import Any

import torch
from isal.isal_zlib import crc32
from torch import Tensor

from ckptlab.checkpoint.tensor_bytes import DTYPE_NAMES
from ckptlab.errors import FormatError, LoadError
from ckptlab.format.exact import MAX_TENSOR_BYTES
from ckptlab.format.header import MAX_DIMS, TensorSpec
from ckptlab.interop.foreign import blank
from ckptlab.interop.torch_zip import Record as Record
from ckptlab.interop.torch_zip import Zip
from ckptlab.interop.unpickle import Classes, loads
from ckptlab.storage.posix import File

PART_BYTES = 8 * 2**20
MAX_VALUE_BYTES = 64 * 2**20  # of a pickle of plain values, or of a tensor's description
STORAGES = {
    ("torch", name): getattr(torch, dtype)
    for name, dtype in {
        "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
        "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
        "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    }.items()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor of the archive: what it is, the bytes that are its memory, strides and begin there in elements."""

    spec: TensorSpec
    record: Record
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a pickle has for a tensor's memory."""

    record: Record
    dtype: torch.dtype


class Archive:
    """The archive in `length` bytes of a file from `begin` on; `where` begins every error.

    With `views`, tensors may be parts of their memory, in any strides; `read` is for those that fill it.
    """

    def __init__(
        self, file: File, begin: int, length: int, where: str, classes: Classes = MappingProxyType({}), views: bool = False
    ) -> None:
        self._zip, self._where, self._classes, self._views = Zip(file, begin, length, where), where, classes, views
        if (order := self._zip.small("byteorder", 16)) not in (None, b"little"):
            raise LoadError(f"{where}: saved with the byte order {order!r}; only little-endian tensors are read")

    def value(self) -> Any:
        """Return what was saved, each tensor as a `SavedTensor`.

        Raises:
            LoadError: it is not whole, or holds more than plain values and tensors.
        """
        if (data := self._zip.small("data.pkl", MAX_VALUE_BYTES)) is None:
            raise LoadError(f"{self._where}: no data.pkl in it; it was not made by torch.save")
        parts = {
            ("torch.storage", "UntypedStorage"): torch.uint8,
            ("torch._utils", "_rebuild_tensor_v2"): self._rebuild_v2,
            ("torch._utils", "_rebuild_tensor_v3"): self._rebuild_v3,
        }
        return loads(data, {**self._classes, **STORAGES, **parts}, self._where, self._memory)

    def read(self, saved: SavedTensor, target: Tensor) -> None:
        """Fill `target`, on the CPU and of the same dtype and shape, with a saved tensor's elements."""
        order = sorted(range(target.dim()), key=lambda dim: saved.strides[dim], reverse=True)
        view = target.permute(order).reshape(-1) if target.numel() == 1 else target.permute(order)
        at, crc = saved.record.begin, 0
        for part in _parts(view):
            own = part if part.is_contiguous() else torch.empty(part.shape, dtype=part.dtype)
            memory = own.reshape(-1).view(torch.uint8).numpy().data
            self._zip.read_into(at, memory)
            at, crc = at + len(memory), crc32(memory, crc)
            if own is not part:
                part.copy_(own)
        self._zip.check_sum(saved.record, crc, "the tensor's bytes")

    def small(self, saved: SavedTensor) -> Tensor:
        """Return a saved tensor; for small ones."""
        tensor = blank(saved.spec)
        self.read(saved, tensor)
        return tensor

    def _memory(self, found: Any) -> _Memory:
        kind, dtype, key, _, _ = found
        is_known = kind == "storage" and isinstance(key, str) and isinstance(dtype, torch.dtype)
        if not is_known or f"data/{key}" not in self._zip.records:
            raise LoadError(f"{self._where}: the tensor's memory {short(key)} is not in the archive")
        return _Memory(self._zip.records[f"data/{key}"], dtype)

    def _rebuild_v2(self, memory: Any, offset: Any, shape: Any, strides: Any, _: Any, __: Any, more: Any = None) -> SavedTensor:
        return self._describe(memory, offset, shape, strides, memory.dtype, more)

    def _rebuild_v3(
        self, memory: Any, offset: Any, shape: Any, strides: Any, _: Any, __: Any, dtype: Any, more: Any = None
    ) -> SavedTensor:
        return self._describe(memory, offset, shape, strides, dtype, more)

    def _describe(self, memory: Any, offset: Any, shape: Any, strides: Any, dtype: Any, more: Any) -> SavedTensor:
        if more:
            raise LoadError(f"{self._where}: a tensor with {short(more)}; only plain tensors are read")
        numbers = (offset, *shape, *strides)
        if len(shape) != len(strides) or len(shape) > MAX_DIMS or not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
            raise LoadError(f"{self._where}: a tensor of shape {short(shape)} and strides {short(strides)}")
        if not isinstance(dtype, torch.dtype) or dtype not in DTYPE_NAMES:
            raise LoadError(f"{self._where}: a tensor of {short(dtype)}, which safetensors has not")
        spec = TensorSpec(DTYPE_NAMES[dtype], tuple(shape))
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        end = max(last + 1, math.prod(shape)) * dtype.itemsize  # not expanded either: what is read is never more than is there
        inside = 0 in shape or end <= memory.record.num_bytes
        fills = not offset and spec.num_bytes == memory.record.num_bytes and _is_dense(shape, strides)
        if not (inside if self._views else fills):
            raise LoadError(
                f"{self._where}: shape {list(shape)}, strides {list(strides)} and offset {offset} do not fit its memory of "
                f"{memory.record.num_bytes} bytes, of which a checkpoint's tensors are {'parts' if self._views else 'all'}"
            )
        return SavedTensor(spec, memory.record, tuple(strides), offset)


def with_tensors(value: Any, small: Callable[[SavedTensor], Tensor]) -> Any:
    """Return a plain value with each tensor in it as `small` reads it.

    Raises:
        FormatError: one is larger than a state holds.
    """
    if isinstance(value, SavedTensor):
        if value.spec.num_bytes > MAX_TENSOR_BYTES:
            raise FormatError(f"a tensor of {value.spec.num_bytes} bytes in a plain value; a state holds {MAX_TENSOR_BYTES}")
        return small(value)
    if isinstance(value, dict):
        return {key: with_tensors(item, small) for key, item in value.items()}
    return type(value)(with_tensors(item, small) for item in value) if type(value) in (list, tuple) else value


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill a run of memory once, in some order of the dims."""
    if 0 in shape:
        return True
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1):
        if stride != step:
            return False
        step *= size
    return True


def _parts(view: Tensor) -> Iterator[Tensor]:
    """Cut a tensor into parts of at most `PART_BYTES`, in row-major order."""
    if view.numel() == 0:
        return
    if view.nbytes <= PART_BYTES:
        yield view
        return
    row_bytes = view.nbytes // len(view)
    if row_bytes <= PART_BYTES:
        yield from torch.split(view, PART_BYTES // row_bytes)
    else:
        for row in view:
            yield from _parts(row)
