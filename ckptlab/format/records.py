"""The records of which a manifest is made: a file, a piece of a tensor, a tensor. Each reads and writes itself.

What lies between records (do pieces end inside their file, do two share bytes) is the manifest's to check.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from ckptlab.errors import FormatError
from ckptlab.format.boxes import Box, check_tiling, whole
from ckptlab.format.codecs import CODECS, FLOATING, INT8, most_stored
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.header import MAX_DIMS, TensorSpec, parse_spec
from ckptlab.format.strict_json import as_list, as_mapping, as_natural, as_naturals, as_record, as_text, refuse

MAX_FRAME_BYTES = 16 * 2**20  # a reader holds one frame in memory, decoded
MIN_BLOCK, MAX_BLOCK = 16, 2**16  # items


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
class Encoding:
    """A tensor's bytes in row-major order, cut into frames of `frame_bytes`; each, encoded, takes one of `stored_bytes`.

    The frames follow each other in the file, from where the tensor's piece begins. `block`: items that share a scale, for int8.
    """

    codec: str
    frame_bytes: int
    stored_bytes: tuple[int, ...]
    block: int | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the bytes that come out are those that went in."""
        return self.codec != INT8

    def to_json(self) -> dict[str, object]:
        """Give the value that stands in the manifest."""
        block = {} if self.block is None else {"block": self.block}
        return {"name": self.codec, "frame_bytes": self.frame_bytes, "stored_bytes": self.stored_bytes, **block}

    @classmethod
    def parse(cls, value: object, where: str, spec: TensorSpec) -> Self:
        """Read a tensor's `codec`; a frame holds whole items and blocks, and is never much larger than what it decodes to."""
        named = as_text(as_mapping(value, where).get("name"), f"{where}: name")
        if named not in CODECS:
            refuse(named, f"{where}: name", f"one of {', '.join(CODECS)}; use the ckptlab that wrote it, or a newer one")
        is_int8 = named == INT8
        record = as_record(value, where, ("name", "frame_bytes", "stored_bytes", *(("block",) if is_int8 else ())))
        block = as_natural(record["block"], f"{where}: block", MAX_BLOCK + 1) if is_int8 else None
        if block is not None and (block < MIN_BLOCK or spec.dtype not in FLOATING):
            raise FormatError(f"{where}: blocks of {block} {spec.dtype}, expected {MIN_BLOCK} or more of {', '.join(FLOATING)}")
        frame_bytes = as_natural(record["frame_bytes"], f"{where}: frame_bytes", MAX_FRAME_BYTES + 1)
        unit = ITEM_BYTES[spec.dtype] * (block or 1)
        if frame_bytes == 0 or frame_bytes % unit:
            refuse(frame_bytes, f"{where}: frame_bytes", f"a multiple of {unit}")
        stored = as_list(record["stored_bytes"], f"{where}: stored_bytes")
        if len(stored) != (expected := -(-spec.num_bytes // frame_bytes)) or not stored:
            raise FormatError(f"{where}: {len(stored)} frames, expected {expected or 'none at all, and no codec'}")
        at_most = most_stored(min(frame_bytes, spec.num_bytes)) + 1
        return cls(named, frame_bytes, tuple(as_natural(n, f"{where}: stored_bytes", at_most) for n in stored), block)


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor, and the pieces that make it up; one that is encoded is one piece, the whole."""

    spec: TensorSpec
    pieces: tuple[Piece, ...]
    encoding: Encoding | None = None

    @property
    def stored_bytes(self) -> int:
        """Count the bytes that the tensor takes in files."""
        return self.spec.num_bytes if self.encoding is None else sum(self.encoding.stored_bytes)

    def to_json(self) -> dict[str, object]:
        """Give the value that stands in the manifest."""
        codec = {} if self.encoding is None else {"codec": self.encoding.to_json()}
        pieces = [piece.to_json() for piece in self.pieces]
        return {"dtype": self.spec.dtype, "shape": self.spec.shape, "pieces": pieces, **codec}

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read one value of a section of `tensors`; its pieces hold each element exactly once."""
        codec = ("codec",) if "codec" in as_mapping(value, where) else ()
        record = as_record(value, where, ("dtype", "shape", "pieces", *codec))
        spec = parse_spec(record["dtype"], record["shape"], where)
        pieces = tuple(Piece.parse(item, f"{where}: pieces") for item in as_list(record["pieces"], f"{where}: pieces"))
        try:
            check_tiling(spec.shape, [piece.box for piece in pieces])
        except FormatError as error:
            raise FormatError(f"{where}: pieces: {error}") from None
        if not codec:
            return cls(spec, pieces)
        if [piece.box for piece in pieces] != [whole(spec.shape)]:
            raise FormatError(f"{where}: {len(pieces)} pieces, expected one, the whole: it has a codec")
        return cls(spec, pieces, Encoding.parse(record["codec"], f"{where}: codec", spec))

    def spans(self) -> Iterator[tuple[str, int, int]]:
        """Give each piece's file and the bytes (begin, end) that it takes there."""
        if self.encoding is not None:
            (piece,) = self.pieces
            return iter([(piece.file, piece.begin, piece.begin + self.stored_bytes)])
        item_bytes = ITEM_BYTES[self.spec.dtype]
        return ((piece.file, piece.begin, piece.begin + piece.box.num_elements * item_bytes) for piece in self.pieces)


def _parse_sum(value: object, where: str) -> int:
    text = as_text(value, where)
    return int(text, 16) if re.fullmatch("[0-9a-f]{8}", text) else refuse(value, where, "8 hexadecimal digits")
