"""The records of which a manifest is made: a file, a piece of a tensor, a tensor. Each reads and writes itself.

What lies between records (do pieces end inside their file, do two share bytes) is the manifest's to check.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from ckptlab.errors import FormatError
from ckptlab.format.boxes import Box, check_tiling
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.header import MAX_DIMS, TensorSpec, parse_spec
from ckptlab.format.strict_json import as_list, as_natural, as_naturals, as_record, as_text, refuse


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file's size in bytes, and the CRC-32 of each of its blocks."""

    num_bytes: int
    crc32: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        """Give the value that stands in the manifest."""
        return {"bytes": self.num_bytes, "crc32": [f"{crc:08x}" for crc in self.crc32]}

    @classmethod
    def parse(cls, value: object, where: str, block_bytes: int) -> Self:
        """Read one value of `files`."""
        record = as_record(value, where, ("bytes", "crc32"))
        num_bytes = as_natural(record["bytes"], f"{where}: bytes")
        sums = tuple(_parse_sum(item, f"{where}: crc32") for item in as_list(record["crc32"], f"{where}: crc32"))
        if len(sums) != (expected := -(-num_bytes // block_bytes)):
            raise FormatError(
                f"{where}: {len(sums)} sums, expected {expected} for {num_bytes} bytes in blocks of {block_bytes}"
            )
        return cls(num_bytes, sums)


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor in a file, row-major without gaps; `begin` counts bytes from the start of the file."""

    file: str
    begin: int
    box: Box

    def to_json(self) -> dict[str, object]:
        """Give the value that stands in the manifest."""
        return {"file": self.file, "begin": self.begin, "offset": self.box.offset, "shape": self.box.shape}

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read one value of `pieces`."""
        record = as_record(value, where, ("file", "begin", "offset", "shape"))
        offset, shape = (as_naturals(record[name], f"{where}: {name}", MAX_DIMS) for name in ("offset", "shape"))
        return cls(
            as_text(record["file"], f"{where}: file"), as_natural(record["begin"], f"{where}: begin"), Box(offset, shape)
        )


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor, and the pieces that make it up."""

    spec: TensorSpec
    pieces: tuple[Piece, ...]

    def to_json(self) -> dict[str, object]:
        """Give the value that stands in the manifest."""
        return {"dtype": self.spec.dtype, "shape": self.spec.shape, "pieces": [piece.to_json() for piece in self.pieces]}

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read one value of a section of `tensors`; its pieces hold each element exactly once."""
        record = as_record(value, where, ("dtype", "shape", "pieces"))
        spec = parse_spec(record["dtype"], record["shape"], where)
        pieces = tuple(Piece.parse(item, f"{where}: pieces") for item in as_list(record["pieces"], f"{where}: pieces"))
        try:
            check_tiling(spec.shape, [piece.box for piece in pieces])
        except FormatError as error:
            raise FormatError(f"{where}: pieces: {error}") from None
        return cls(spec, pieces)

    def spans(self) -> Iterator[tuple[str, int, int]]:
        """Give each piece's file and the bytes (begin, end) that it takes there."""
        item_bytes = ITEM_BYTES[self.spec.dtype]
        return ((piece.file, piece.begin, piece.begin + piece.box.num_elements * item_bytes) for piece in self.pieces)


def _parse_sum(value: object, where: str) -> int:
    text = as_text(value, where)
    return int(text, 16) if re.fullmatch("[0-9a-f]{8}", text) else refuse(value, where, "8 hexadecimal digits")
