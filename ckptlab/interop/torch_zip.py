"""A zip without compression in some bytes of a file, as `torch.save` writes one: where its entries lie, each checked."""

import io
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from isal.isal_zlib import crc32

from ckptlab.errors import FormatError, LoadError
from ckptlab.storage.posix import File, read_into

LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip's entry: then come its name and extra field, of these lengths, and the data


@dataclass(frozen=True, slots=True)
class Record:
    """An entry of the zip: where its bytes lie in the file, and their CRC-32; 0 when the writer computed none."""

    begin: int
    num_bytes: int
    crc: int


class Zip:
    """The zip in `length` bytes of a file from `begin` on; `where` begins every error.

    Attributes:
        records: its entries by name, without the folder that all of them stand in.
    """

    def __init__(self, file: File, begin: int, length: int, where: str) -> None:
        self._file, self._begin, self._length, self._where = file, begin, length, where
        self.records = dict(self._entries())

    def small(self, name: str, at_most: int) -> bytes | None:
        """Return an entry's bytes; None where there is no such entry."""
        if (record := self.records.get(name)) is None:
            return None
        if record.num_bytes > at_most:
            raise LoadError(f"{self._where}: {name} has {record.num_bytes} bytes, at most {at_most} are read")
        data = bytearray(record.num_bytes)
        self.read_into(record.begin, memoryview(data))
        self.check_sum(record, crc32(data), name)
        return bytes(data)

    def read_into(self, begin: int, view: memoryview) -> None:
        """Fill the byte view from byte `begin` of the file on."""
        try:
            read_into(self._file, begin, view)
        except FormatError as error:
            raise LoadError(f"{self._where}: {error}") from None

    def check_sum(self, record: Record, crc: int, what: str) -> None:
        """Refuse bytes whose CRC-32 is not the one that was written."""
        if record.crc not in (0, crc):
            raise LoadError(f"{self._where}: {what} are not those that were written: CRC-32 {crc:08x}, told {record.crc:08x}")

    def _entries(self) -> Iterator[tuple[str, Record]]:
        try:
            with zipfile.ZipFile(_Window(self._file, self._begin, self._length)) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, FormatError) as error:
            raise LoadError(f"{self._where}: not an archive of torch.save, or cut short ({error})") from None
        for info in infos:
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                raise LoadError(f"{self._where}: {info.filename!r:.99} is compressed, which torch.save does not do")
            head = bytearray(LOCAL_HEADER.size)
            self._check_inside(info.header_offset, len(head))
            self.read_into(self._begin + info.header_offset, memoryview(head))
            begin = info.header_offset + LOCAL_HEADER.size + sum(LOCAL_HEADER.unpack(head))
            self._check_inside(begin, info.file_size)
            yield info.filename.partition("/")[2], Record(self._begin + begin, info.file_size, info.CRC)

    def _check_inside(self, begin: int, num_bytes: int) -> None:
        if begin < 0 or begin + num_bytes > self._length:
            raise LoadError(f"{self._where}: an entry of {num_bytes} bytes at {begin} reaches beyond {self._length} bytes")


class _Window(io.RawIOBase):
    """Part of a file as a file of its own, for `zipfile`."""

    def __init__(self, file: File, begin: int, length: int) -> None:
        self._file, self._begin, self._length, self._at = file, begin, length, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        if at < 0:
            raise ValueError(f"seek to {at}")
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: max(self._length - self._at, 0)]
        read_into(self._file, self._begin + self._at, view)
        self._at += len(view)
        return len(view)
