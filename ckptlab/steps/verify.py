"""Are the bytes of a step those that were written? Reads every block of every file with one bounded buffer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from isal.isal_zlib import crc32

from ckptlab.errors import FormatError
from ckptlab.format.checksums import block_ranges
from ckptlab.format.manifest import FileRecord, Manifest
from ckptlab.format.names import MANIFEST, PINNED
from ckptlab.steps.reading import rank_tensors, tensors_by_file
from ckptlab.steps.steps import Step, file_faults
from ckptlab.storage import posix

BUFFER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Bytes `begin` to `end` of a file of the step are wrong, and with them these tensors."""

    file: str
    begin: int
    end: int
    tensors: tuple[str, ...]
    what: str

    def __str__(self) -> str:
        """One line for a person."""
        where = f" bytes {self.begin}-{self.end}" if self.end > self.begin else ""
        tensors = f"; tensors in it: {', '.join(self.tensors)}" if self.tensors else ""
        return f"{self.file}{where}: {self.what}{tensors}"


def verify(step: Step, progress: Callable[[int], None] | None = None) -> Iterator[Fault]:
    """Find what is not as it was written; nothing found means that every byte is.

    A bad block is named by its range, because no checksum tells the damaged byte. A file that the manifest does not list is
    named too. `progress` gets the number of bytes after each read.
    """
    if step.manifest is None:
        yield Fault(file=MANIFEST, begin=0, end=0, tensors=(), what=step.fault or "")
        return
    unreadable = dict(file_faults(step.path, step.manifest))
    pieces = tensors_by_file(step.manifest)
    for file, record in step.manifest.files.items():
        if file in unreadable:
            tensors = tuple(sorted({name for _, _, name in pieces.get(file, ())}))
            yield Fault(file=file, begin=0, end=record.num_bytes, tensors=tensors, what=unreadable[file])
            continue
        for begin, end, what in _bad_blocks(step.path / file, record, step.manifest.block_bytes, progress or (lambda _: None)):
            in_file = pieces.get(file) or _pieces_of_rank(step.path, file)
            tensors = tuple(sorted({name for first, last, name in in_file if max(first, begin) < min(last, end)}))
            yield Fault(file=file, begin=begin, end=end, tensors=tensors, what=what)
    for file in _unlisted(step.path, step.manifest):
        yield Fault(file=file, begin=0, end=0, tensors=(), what="not listed in the manifest; nothing reads it")


def _bad_blocks(
    path: Path, record: FileRecord, block_bytes: int, progress: Callable[[int], None]
) -> Iterator[tuple[int, int, str]]:
    buffer = memoryview(bytearray(min(BUFFER_BYTES, record.num_bytes)))
    with posix.open_to_read(path) as fd:
        for (begin, end), expected in zip(block_ranges(record.num_bytes, block_bytes), record.crc32, strict=True):
            try:
                found = _sum(fd, begin, end, buffer, progress)
            except (OSError, FormatError) as error:
                yield begin, end, f"cannot be read: {error}"
                continue
            if found != expected:
                yield begin, end, f"crc32 is {found:08x}, {expected:08x} was written"


def _sum(fd: int, begin: int, end: int, buffer: memoryview, progress: Callable[[int], None]) -> int:
    found = 0
    for at in range(begin, end, len(buffer)):
        part = buffer[: end - at]
        posix.read_into(fd, at, part)
        found = crc32(part, found)
        progress(len(part))
    return found


def _pieces_of_rank(step_path: Path, file: str) -> list[tuple[int, int, str]]:
    """Name the tensors of a rank's file from its own header, if that can still be read."""
    if not file.endswith(".safetensors"):
        return []
    try:
        records = rank_tensors(step_path, file)
    except FormatError:
        return []
    return [(begin, end, name) for name, record in records.items() for _, begin, end in record.spans()]


def _unlisted(step_path: Path, manifest: Manifest) -> list[str]:
    folders = {name.rpartition("/")[0] for name in manifest.files} - {""}
    found = set(posix.list_names(step_path)) - folders
    for folder in folders:
        if posix.exists_directory(step_path / folder):
            found |= {f"{folder}/{name}" for name in posix.list_names(step_path / folder)}
    return sorted(found - set(manifest.files) - {MANIFEST, PINNED})
