"""Read a committed step, verified.

`StepReader.read` gives whole blocks, so that no byte reaches anybody before its block's sum was found right. `read_run` reads
no more than is wanted; `sums` tells afterwards which blocks that proves.
"""

from collections.abc import Iterator
from contextlib import ExitStack

from isal import isal_zlib

from ckptlab.errors import CorruptError, FormatError
from ckptlab.format.manifest import Manifest
from ckptlab.format.spans import SpanSums
from ckptlab.format.strips import Rows, Strip, cut_at_blocks, rows
from ckptlab.steps.ahead import Ahead
from ckptlab.steps.verify import bad_block, wrong_sum
from ckptlab.storage import ObjectPath, Place, store


class StepReader:
    """Reads ranges of the files that a manifest lists, block by block, through one buffer of at most one block.

    Use it as a context manager; it keeps one file open at a time. From a store it fetches the next blocks of a range meanwhile.
    """

    def __init__(self, path: Place, manifest: Manifest) -> None:
        self._path = path
        self._manifest = manifest
        self.sums = SpanSums(manifest.files, manifest.block_bytes)
        longest = max((file.num_bytes for file in manifest.files.values()), default=0)
        self._buffer = memoryview(bytearray(min(manifest.block_bytes, longest)))
        self._stack = ExitStack()
        self._file: str | None = None
        self._opened: store.File
        self._held: tuple[str, int] | None = None  # file and block that the buffer has, verified
        self._ahead = Ahead(path, manifest) if isinstance(path, ObjectPath) else None

    def __enter__(self) -> "StepReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self._ahead is not None:
            self._ahead.close()

    def read(self, file: str, strip: Strip) -> Iterator[tuple[Strip, Rows]]:
        """Yield the bytes of a strip of the file, verified, a block at a time. They are overwritten by the next.

        Raises:
            CorruptError: a block is not as it was written; the message names the file, the block's bytes and its tensors.
        """
        cuts = cut_at_blocks(strip, self._manifest.block_bytes)
        if self._ahead is not None:
            cuts = self._ahead.cuts(file, cuts, self._held[1] if self._held is not None and self._held[0] == file else None)
        for cut in cuts:
            block, begin = divmod(cut.begin, self._manifest.block_bytes)
            self._load(file, block)
            yield cut, rows(self._buffer, begin, cut.length, cut.num_runs, cut.step)

    def read_run(self, file: str, begin: int, length: int, into: memoryview | None = None) -> memoryview:
        """Read a run that lies in one block, and no more; return it: in the memory given, or where the next one overwrites it.

        Nothing is known of its bytes until `sums` prove the block, with the spans of other readers if need be.

        Raises:
            CorruptError: it cannot be read.
        """
        block, at = divmod(begin, self._manifest.block_bytes)
        if self._held == (file, block):
            run = self._buffer[at : at + length]
            if into is not None:
                into[:] = run
        else:
            if into is None:
                self._held = None
            run = self._buffer[:length] if into is None else into
            self._fetch(file, block, begin, run)
        self.sums.add(file, begin, run)
        return run

    def read_whole(self, file: str, at_most: int) -> bytes:
        """Return a small file, verified; refuse one of more than `at_most` bytes before anything is read."""
        num_bytes = self._manifest.files[file].num_bytes
        if num_bytes > at_most:
            raise FormatError(f"{file}: {num_bytes} bytes, expected at most {at_most}")
        return b"".join(part.tobytes() for _, part in self.read(file, Strip(0, 0, num_bytes)))

    def check(self, file: str) -> None:
        """Read a file of any size and compare its sums."""
        for _ in self.read(file, Strip(0, 0, self._manifest.files[file].num_bytes)):
            pass

    def _load(self, file: str, block: int) -> None:
        if self._held == (file, block):
            return
        record = self._manifest.files[file]
        begin = block * self._manifest.block_bytes
        view = self._buffer[: min(self._manifest.block_bytes, record.num_bytes - begin)]
        self._held = None  # what is in the buffer is nothing until its sum was found right
        self._fetch(file, block, begin, view)
        found = isal_zlib.crc32(view)
        if found != record.crc32[block]:
            raise CorruptError(self._fault(file, block, wrong_sum(found, record.crc32[block])))
        self._held = (file, block)

    def _fetch(self, file: str, block: int, begin: int, view: memoryview) -> None:
        try:
            self._open(file)
            if self._ahead is not None:
                self._ahead.take(block, view)
            else:
                store.read_into(self._opened, begin, view)
        except (OSError, FormatError) as error:  # a disk that does not give a block back has lost it
            raise CorruptError(self._fault(file, block, f"cannot be read: {error}")) from error

    def _fault(self, file: str, block: int, what: str) -> str:
        return f"{self._path}: {bad_block(self._path, self._manifest, file, block, what)}"

    def _open(self, file: str) -> None:
        if file != self._file:
            self._file = None
            self._stack.close()
            self._opened = self._stack.enter_context(store.open_to_read(self._path / file))
            self._file = file
