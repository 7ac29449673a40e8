"""A file of `torch.save`: what was saved, opened at once, and its tensors, read in runs of elements."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from isal.isal_zlib import crc32
from torch import Tensor

from ckptlab.checkpoint.tensor_bytes import DTYPES
from ckptlab.errors import FormatError, LoadError
from ckptlab.format.header import TensorSpec
from ckptlab.interop.foreign import blank
from ckptlab.interop.torch_archive import Archive, Record, SavedTensor
from ckptlab.interop.unpickle import Classes
from ckptlab.storage import posix

PART_BYTES = 4 * 2**20


class TorchFile:
    """A file, whose memories are compared with the zip's CRC-32s before anything of them is read, each once.

    Attributes:
        path: where it stands.
        value: what was saved, each tensor as a `SavedTensor`.
    """

    def __init__(self, path: Path, classes: Classes) -> None:
        """Open and describe.

        Raises:
            LoadError: there is no such file, it is not whole, or it asks for more than plain values, tensors and `classes`.
        """
        self.path = path
        self._sound: set[Record] = set()
        if (num_bytes := posix.size_of(path)) is None:
            raise LoadError(f"{path} is missing, or is no regular file; copy the checkpoint anew, with all its files")
        with posix.open_to_read(path) as file:
            self.value: Any = Archive(file, 0, num_bytes, str(path), classes, views=True).value()

    def read_run(self, saved: SavedTensor, begin: int, target: Tensor) -> None:
        """Fill a tensor of one dim with the elements from `begin` on, in row-major order, converted to its dtype.

        Raises:
            LoadError: the file has changed, or is not as it was written.
        """
        if not _is_in_order(saved.spec.shape, saved.strides):
            target.copy_(self._gathered(saved).reshape(-1)[begin : begin + len(target)])
            return
        dtype, at = DTYPES[saved.spec.dtype], saved.offset + begin
        with posix.open_to_read(self.path) as file:
            self._check(file, saved.record)
            for part in _parts(target, PART_BYTES // dtype.itemsize):
                own = part if part.dtype == dtype else torch.empty(len(part), dtype=dtype)
                self._read(file, saved.record.begin + at * dtype.itemsize, own.view(torch.uint8).numpy().data)
                at += len(part)
                if own is not part:
                    part.copy_(own)

    def small(self, saved: SavedTensor) -> Tensor:
        """Return a tensor whole, as it was saved."""
        tensor = blank(saved.spec)
        self.read_run(saved, 0, tensor.view(-1))
        return tensor

    def _gathered(self, saved: SavedTensor) -> Tensor:
        """Read all of the memory that a tensor of other strides lies in; only small ones are like that."""
        dtype, strides = DTYPES[saved.spec.dtype], saved.strides
        length = 1 + sum((size - 1) * stride for size, stride in zip(saved.spec.shape, strides, strict=True))
        around = SavedTensor(TensorSpec(saved.spec.dtype, (length,)), saved.record, (1,), saved.offset)
        memory = torch.empty(length, dtype=dtype)
        self.read_run(around, 0, memory)
        return memory.as_strided(saved.spec.shape, strides)

    def _check(self, file: posix.File, record: Record) -> None:
        if record.crc == 0 or record in self._sound:  # 0: the writer was told to compute none
            return
        part, crc = memoryview(bytearray(min(PART_BYTES, record.num_bytes))), 0
        for at in range(0, record.num_bytes, PART_BYTES):
            view = part[: record.num_bytes - at]
            self._read(file, record.begin + at, view)
            crc = crc32(view, crc)
        if crc != record.crc:
            raise LoadError(
                f"{self.path}: the {record.num_bytes} bytes from {record.begin} on are not those that were written: "
                f"CRC-32 {crc:08x}, told {record.crc:08x}; copy the file anew"
            )
        self._sound.add(record)

    def _read(self, file: posix.File, begin: int, view: memoryview) -> None:
        try:
            posix.read_into(file, begin, view)
        except FormatError as error:
            raise LoadError(f"{self.path}: {error}") from None


@dataclass(frozen=True, slots=True)
class Run:
    """Elements `begin` to `begin + length` of a saved tensor, counted row by row."""

    file: TorchFile
    saved: SavedTensor
    begin: int
    length: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A tensor whose elements are those of some runs, one after another."""

    spec: TensorSpec
    runs: Sequence[Run]

    def read(self) -> Tensor:
        """Return it, on the CPU."""
        tensor = blank(self.spec)
        rest = tensor.view(-1)
        for run in self.runs:
            run.file.read_run(run.saved, run.begin, rest[: run.length])
            rest = rest[run.length :]
        return tensor


def num_elements(saved: SavedTensor) -> int:
    """Count the elements of a saved tensor."""
    return math.prod(saved.spec.shape)


def _is_in_order(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements stand one after another in memory, row by row."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step and 0 not in shape:
            return False
        step *= size
    return True


def _parts(target: Tensor, length: int) -> Iterator[Tensor]:
    return (target[begin : begin + length] for begin in range(0, len(target), length))
