"""One rank's hands while a step is written: the files that it has open, and the sums of what it wrote."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ckptlab.format.checksums import FileSums
from ckptlab.format.strips import Rows, Strip
from ckptlab.storage import posix

SYNC_BYTES = 8 << 20  # written into a file before the disk begins with them, while this rank goes on


class StepWriter:
    """Writes into the files of one temporary step directory and sums every byte on its way out of memory.

    A descriptor stays open from the first write to `sync`, so that what is made durable is what was written through it. As a
    context manager it closes what a failure left open.
    """

    def __init__(self, directory: Path, block_bytes: int) -> None:
        self.directory = directory
        self._block_bytes = block_bytes
        self._stack = ExitStack()
        self._open: dict[str, posix.File] = {}
        self._sums: dict[str, FileSums] = {}
        self._waiting: Counter[str] = Counter()  # bytes by file

    def __enter__(self) -> "StepWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, file: str, file_bytes: int, begin: int, data: bytes) -> None:
        """Write `data` from byte `begin` of a file that will have `file_bytes` in all."""
        posix.write_at(self._opened(file, file_bytes), begin, data)
        self._sums[file].add(begin, data)

    def write_strip(self, file: str, file_bytes: int, strip: Strip, data: Rows) -> None:
        """Write the rows of `data` where a strip stands in the file, in one block of it."""
        posix.write_rows(self._opened(file, file_bytes), strip.begin, strip.step, data)
        self._sums[file].add_rows(strip.begin, strip.step, data)
        self._waiting[file] += data.size
        if self._waiting[file] >= SYNC_BYTES:
            posix.begin_sync(self._open[file])
            self._waiting[file] = 0

    def write_whole(self, file: str, data: bytes) -> None:
        """Create a file that only this rank writes."""
        posix.make_directory((self.directory / file).parent)
        posix.reserve(self.directory / file, len(data))
        self.write(file, len(data), 0, data)

    def sync(self) -> None:
        """Return when all that this rank wrote is durable, and close the files."""
        for opened in self._open.values():
            posix.sync(opened)
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._stack.close()
        self._open.clear()

    def _opened(self, file: str, file_bytes: int) -> posix.File:
        if file not in self._open:
            self._open[file] = self._stack.enter_context(posix.open_to_write(self.directory / file))
            self._sums[file] = FileSums(file_bytes, self._block_bytes)
        return self._open[file]

    def sums(self) -> dict[str, dict[str, Any]]:
        """Return, by file, its size and what this rank contributes to the sums of its blocks; as JSON."""
        return {file: {"bytes": sums.file_bytes, "blocks": sums.to_json()} for file, sums in self._sums.items()}


def merge_sums(everybody: list[dict[str, dict[str, Any]]], block_bytes: int) -> dict[str, FileSums]:
    """Return the sums of every file from what all ranks contribute."""
    merged: dict[str, FileSums] = {}
    for contributed in everybody:
        for file, part in contributed.items():
            sums = merged.setdefault(file, FileSums(part["bytes"], block_bytes))
            sums.merge(FileSums.from_json(part["bytes"], block_bytes, part["blocks"]))
    return merged
