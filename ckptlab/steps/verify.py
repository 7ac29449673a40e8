"""Are the bytes of a step those that were written? Reads every block of every file with one bounded buffer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from isal.isal_zlib import crc32

from ckptlab.errors import FormatError
from ckptlab.format.checksums import BLOCK_BYTES, block_ranges
from ckptlab.format.manifest import Manifest
from ckptlab.format.names import MANIFEST, PINNED
from ckptlab.format.records import FileRecord
from ckptlab.steps.reading import rank_tensors, tensors_by_file
from ckptlab.steps.steps import Step, base_fault, file_faults
from ckptlab.storage import Place, store


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
    named too. Of a step that this one is stored against only the manifest and the sizes are looked at. `progress` gets the
    number of bytes after each read.
    """
    manifest, path = step.manifest, step.path
    if manifest is None:
        yield Fault(file=MANIFEST, begin=0, end=0, tensors=(), what=step.fault or "")
        return
    unreadable, pieces = dict(file_faults(path, manifest)), tensors_by_file(manifest)
    for file, record in manifest.files.items():
        if file in unreadable:
            yield _fault(path, pieces, file, 0, record.num_bytes, unreadable[file])
            continue
        for begin, end, what in _bad_blocks(path / file, record, manifest.block_bytes, progress or (lambda _: None)):
            yield _fault(path, pieces, file, begin, end, what)
    yield from _unlisted(path, manifest)
    if (why := base_fault(path, manifest)) is not None:
        yield Fault(file=MANIFEST, begin=0, end=0, tensors=(), what=why)


def bad_block(step_path: Place, manifest: Manifest, file: str, block: int, what: str) -> Fault:
    """Name the bytes and the tensors of block `block` of a file, of which `what` is wrong."""
    begin = block * manifest.block_bytes
    end = min(begin + manifest.block_bytes, manifest.files[file].num_bytes)
    return _fault(step_path, tensors_by_file(manifest), file, begin, end, what)


def _fault(
    step_path: Place, pieces: Mapping[str, Sequence[tuple[int, int, str]]], file: str, begin: int, end: int, what: str
) -> Fault:
    in_file = pieces.get(file) or _pieces_of_rank(step_path, file)
    tensors = tuple(sorted({name for first, last, name in in_file if max(first, begin) < min(last, end)}))
    return Fault(file=file, begin=begin, end=end, tensors=tensors, what=what)


def wrong_sum(found: int, expected: int) -> str:
    """Say that a block is not as it was written."""
    return f"crc32 is {found:08x}, {expected:08x} was written"


def _bad_blocks(
    path: Place, record: FileRecord, block_bytes: int, progress: Callable[[int], None]
) -> Iterator[tuple[int, int, str]]:
    buffer = memoryview(bytearray(min(BLOCK_BYTES, record.num_bytes)))
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(store.open_to_read(path))
        except (OSError, FormatError) as error:
            yield 0, record.num_bytes, f"cannot be read: {error}"
            return
        for (begin, end), expected in zip(block_ranges(record.num_bytes, block_bytes), record.crc32, strict=True):
            try:
                found = _sum(opened, begin, end, buffer, progress)
            except (OSError, FormatError) as error:
                yield begin, end, f"cannot be read: {error}"
                continue
            if found != expected:
                yield begin, end, wrong_sum(found, expected)


def _sum(file: store.File, begin: int, end: int, buffer: memoryview, progress: Callable[[int], None]) -> int:
    found = 0
    for at in range(begin, end, len(buffer)):
        part = buffer[: end - at]
        store.read_into(file, at, part)
        found = crc32(part, found)
        progress(len(part))
    return found


def _pieces_of_rank(step_path: Place, file: str) -> list[tuple[int, int, str]]:
    """Name the tensors of a rank's file from its own header, if that can still be read."""
    if not file.endswith(".safetensors"):
        return []
    try:
        records = rank_tensors(step_path, file)
    except (OSError, FormatError):
        return []
    return [(begin, end, name) for name, record in records.items() for _, begin, end in record.spans()]


def _unlisted(step_path: Place, manifest: Manifest) -> Iterator[Fault]:
    """Name what the manifest does not list, and a folder of which that cannot be told."""
    folders = {name.rpartition("/")[0] for name in manifest.files}
    for folder in sorted(folders | {""}):
        try:
            names = store.list_names(step_path / folder) if store.exists_directory(step_path / folder) else []
        except OSError as error:
            yield Fault(file=folder or ".", begin=0, end=0, tensors=(), what=f"cannot be listed: {error}")
            continue
        for file in (f"{folder}/{name}".removeprefix("/") for name in names):
            if file not in {*manifest.files, *folders, MANIFEST, PINNED}:
                yield Fault(file=file, begin=0, end=0, tensors=(), what="not listed in the manifest; nothing reads it")
