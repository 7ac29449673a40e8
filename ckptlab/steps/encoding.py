"""Encode the tensors of a section of a committed step, one after the other, into files without a header."""

from collections.abc import Callable
from contextlib import ExitStack
from itertools import count, repeat
from pathlib import Path

from isal.isal_zlib import crc32

from ckptlab.format import names
from ckptlab.format.boxes import whole
from ckptlab.format.checksums import block_ranges
from ckptlab.format.codecs import BLOCK_ITEMS, FLOATING, FRAME_BYTES, INT8, PLANES, XOR, encode
from ckptlab.format.files import MAX_FILE_BYTES
from ckptlab.format.manifest import Manifest
from ckptlab.format.records import Encoding, FileRecord, Piece, TensorRecord
from ckptlab.steps.frames import Frames, Tensor, can_be_base
from ckptlab.storage import posix

Choose = Callable[[str, str], str | None]
"""From section and name of a tensor to the codec that it is to have; None: as it is."""


class Source:
    """A committed step that is made small, and the step that it is stored against, if it is."""

    def __init__(self, path: Path, manifest: Manifest, base: tuple[Path, Manifest] | None) -> None:
        self.path, self.manifest, self.base = path, manifest, base

    def codec_of(self, choose: Choose, section: str, name: str) -> str | None:
        """Return the codec that a tensor is to get; None where it has one, or none is wanted."""
        record, wanted = self.manifest.tensors[section][name], choose(section, name)
        if record.encoding is not None or wanted is None or record.spec.num_bytes == 0:
            return None
        if wanted == INT8 and record.spec.dtype not in FLOATING:
            return PLANES
        if wanted == XOR and (self.base is None or not can_be_base(self.base[1], (section, name), record)):
            return PLANES
        return wanted


class SectionWriter:
    """Writes the tensors of a section one after the other into files without a header."""

    def __init__(self, source: Source, work: Path, section: str, frames: Frames, base: Frames | None) -> None:
        self._source, self._work, self._section, self._frames, self._base = source, work, section, frames, base
        numbered = (names.small_file(section, number) for number in count(1))
        self._names = (name for name in numbered if name not in source.manifest.files)
        self._stack = ExitStack()
        self._written: list[str] = []
        self._open: posix.File
        self._end = MAX_FILE_BYTES

    def write(self, name: str, codec: str | None) -> TensorRecord:
        """Write a tensor, with a codec if that makes it smaller; one that has a codec already, as it stands."""
        if self._end >= MAX_FILE_BYTES:
            self._next_file()
        begin, record = self._end, self._source.manifest.tensors[self._section][name]
        piece = Piece(self._written[-1], begin, whole(record.spec.shape))
        if record.encoding is not None:
            for part in self._frames.stored((self._section, name)):
                self._append(part)
            return TensorRecord(record.spec, (piece,), record.encoding)
        for chosen in tried(self._better(name, codec)):
            stored = stored_bytes(self._frames, self._base, (self._section, name), chosen, self._append)
            if stored is not None and sum(stored) < record.spec.num_bytes:
                block = BLOCK_ITEMS if chosen == INT8 else None
                return TensorRecord(record.spec, (piece,), Encoding(chosen, FRAME_BYTES, tuple(stored), block))
            self._end = begin
        for window in self._frames.windows((self._section, name), FRAME_BYTES):
            self._append(window)
        return TensorRecord(record.spec, (piece,))

    def close(self) -> dict[str, FileRecord]:
        """Make the files durable; return them with the sums of their blocks."""
        if self._written:
            self._close_file()
        return {name: _record(self._work / name, self._source.manifest.block_bytes) for name in self._written}

    def _better(self, name: str, codec: str | None) -> str | None:
        """Leave `XOR` where the first frame says that it does not pay: a moment that moves much is smaller alone."""
        if codec != XOR or self._base is None:
            return codec
        dtype = self._source.manifest.tensors[self._section][name].spec.dtype
        raw, base = (next(frames.windows((self._section, name), FRAME_BYTES)) for frames in (self._frames, self._base))
        return min((XOR, PLANES), key=lambda one: len(encode(one, raw, dtype, base if one == XOR else None) or b""))

    def _append(self, part: bytes | memoryview) -> None:
        posix.write_at(self._open, self._end, part)
        self._end += len(part)

    def _next_file(self) -> None:
        if self._written:
            self._close_file()
        name = next(self._names)
        posix.make_directory((self._work / name).parent)
        posix.reserve(self._work / name, 0)
        self._open, self._end = self._stack.enter_context(posix.open_to_write(self._work / name)), 0
        self._written.append(name)

    def _close_file(self) -> None:
        posix.cut(self._open, self._end)  # what did not get smaller was written over, and may have been longer
        posix.sync(self._open)
        self._stack.close()


def _record(path: Path, block_bytes: int) -> FileRecord:
    """Sum a file that was just written: what it decodes to is compared afterwards."""
    num_bytes, sums = posix.size_of(path) or 0, []
    buffer = memoryview(bytearray(min(block_bytes, num_bytes)))
    with posix.open_to_read(path) as file:
        for begin, end in block_ranges(num_bytes, block_bytes):
            posix.read_into(file, begin, buffer[: end - begin])
            sums.append(crc32(buffer[: end - begin]))
    return FileRecord(num_bytes, tuple(sums))


def tried(codec: str | None) -> list[str]:
    """List what a tensor is encoded with until it is smaller."""
    return [] if codec is None else list(dict.fromkeys((codec, PLANES)))


def stored_bytes(
    frames: Frames, base: Frames | None, tensor: Tensor, codec: str, take: Callable[[bytes], object]
) -> list[int] | None:
    """Encode a tensor, hand each frame on, and return their bytes; None where the codec cannot hold a value."""
    dtype, stored = frames.manifest.tensors[tensor[0]][tensor[1]].spec.dtype, []
    bases = base.windows(tensor, FRAME_BYTES) if codec == XOR and base is not None else repeat(None)
    for window, against in zip(frames.windows(tensor, FRAME_BYTES), bases, strict=False):
        frame = encode(codec, window, dtype, against)
        if frame is None:
            return None
        stored.append(len(frame))
        take(frame)
    return stored
