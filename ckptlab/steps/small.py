"""Write the tensors of a committed step a second time, encoded, into a directory of their own; and compare them.

A section of which a tensor gets a codec leaves its safetensors files altogether: `model/` is plain Hugging Face, or has no
tensor. What does not get smaller stands as it was among the frames. All other files are linked, or copied if that cannot be.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ckptlab.errors import StepError
from ckptlab.format import names
from ckptlab.format.codecs import BLOCK_ITEMS, FRAME_BYTES, XOR, scales
from ckptlab.format.dtypes import numpy_dtype
from ckptlab.format.manifest import SMALL_OF, Manifest
from ckptlab.format.records import FileRecord, TensorRecord
from ckptlab.steps.encoding import Choose, SectionWriter, Source, stored_bytes, tried
from ckptlab.steps.frames import Frames
from ckptlab.storage import posix

Progress = Callable[[int], object]
"""Gets the number of bytes of tensors that were worked on."""
SLACK = 1.01  # of a scale: decoded values are rounded to their dtype once more


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallTensor:
    """What became of a tensor: its bytes before and now, and how far a value is from what it was, at most."""

    section: str
    name: str
    codec: str | None
    raw_bytes: int
    stored_bytes: int
    error: float = 0.0


def write_small(source: Source, work: Path, choose: Choose, progress: Progress) -> Manifest | None:
    """Write the step in its small form into a new directory, durably; return its manifest, None where it is not smaller."""
    old = source.manifest
    with ExitStack() as stack:
        frames = stack.enter_context(Frames(source.path, old))
        base = None if source.base is None else stack.enter_context(Frames(*source.base))
        tensors = {section: dict(old.tensors[section]) for section in names.SECTIONS}
        files: dict[str, FileRecord] = {}
        sections, are_mixed = _sections(source, choose)
        for section in sections:
            writer, now = SectionWriter(source, work, section, frames, base), {}
            for name, record in old.tensors[section].items():
                now[name] = writer.write(name, source.codec_of(choose, section, name))
                progress(record.spec.num_bytes)
            written = writer.close()
            if are_mixed or any(now[name].encoding != record.encoding for name, record in old.tensors[section].items()):
                tensors[section], files = now, {**files, **written}
                continue
            for file in written:
                posix.remove_file(work / file)
    gone = _held_files(old.tensors) - _held_files(tensors)
    gone |= {names.index_file(section) for section in names.SECTIONS if tensors[section] != old.tensors[section]}
    kept = {name: record for name, record in old.files.items() if name not in gone}
    new = replace(old, files={**kept, **files}, tensors=tensors, saved_by={**old.saved_by, SMALL_OF: old.original})
    if source.base is not None and any(encoding.codec == XOR for _, _, encoding in new.encoded()):
        new = replace(new, parent=source.base[1].step)
    small = Manifest.parse(new.to_json())
    if _all_bytes(small) >= _all_bytes(old):
        return None
    _finish(source.path, work, small, kept)
    return small


def gets_smaller(source: Source, choose: Choose) -> bool:
    """Whether a tensor that has no codec yet would get smaller, without writing anything."""
    with ExitStack() as stack:
        frames = stack.enter_context(Frames(source.path, source.manifest))
        base = None if source.base is None else stack.enter_context(Frames(*source.base))
        return any(
            sum(stored) < source.manifest.tensors[section][name].spec.num_bytes
            for section, named in source.manifest.tensors.items()
            for name in named
            for codec in tried(source.codec_of(choose, section, name))
            if (stored := stored_bytes(frames, base, (section, name), codec, lambda frame: None)) is not None
        )


def compare_small(source: Source, work: Path, small: Manifest, progress: Progress) -> Iterator[SmallTensor]:
    """Decode what was written and compare it with what it was made of.

    Raises:
        StepError: a value is another, or with int8 farther away than it can be.
    """
    with Frames(source.path, source.manifest) as old, Frames(work, small) as new:
        for section in names.SECTIONS:
            for name, record in small.tensors[section].items():
                tensor, error = (section, name), 0.0
                if record.pieces != source.manifest.tensors[section][name].pieces:
                    pairs = zip(old.windows(tensor, FRAME_BYTES), new.windows(tensor, FRAME_BYTES), strict=True)
                    error = max((_error(record, one, other) for one, other in pairs), default=0.0)
                if error == math.inf:
                    raise StepError(f"{source.path} is left as it is: {section} {name!r} does not come back as it was")
                codec = record.encoding.codec if record.encoding else None
                raw, stored = record.spec.num_bytes, record.stored_bytes
                yield SmallTensor(section=section, name=name, codec=codec, raw_bytes=raw, stored_bytes=stored, error=error)
                progress(raw)


def _error(record: TensorRecord, one: memoryview, other: memoryview) -> float:
    """Return the largest distance of two values; infinity where they differ more than the codec may let them."""
    if one == other:
        return 0.0
    if record.encoding is None or record.encoding.is_exact:
        return math.inf
    dtype = record.spec.dtype
    before, after = (np.frombuffer(window, numpy_dtype(dtype)).astype(np.float64) for window in (one, other))
    distance = np.abs(before - after)
    at_most = np.repeat(scales(one, dtype).astype(np.float64), BLOCK_ITEMS)[: len(distance)] * SLACK
    return float(distance.max()) if bool((distance <= at_most).all()) else math.inf


def _sections(source: Source, choose: Choose) -> tuple[list[str], bool]:
    """List the sections that are written anew; where files hold both, as those of ranks do, both or none, and say so."""
    tensors = source.manifest.tensors
    chosen = [s for s in names.SECTIONS if any(source.codec_of(choose, s, name) for name in tensors[s])]
    shared = set.intersection(*(_held_files({section: tensors[section]}) for section in names.SECTIONS))
    return (list(names.SECTIONS), True) if chosen and shared else (chosen, False)


def _held_files(tensors: Mapping[str, Mapping[str, TensorRecord]]) -> set[str]:
    return {piece.file for named in tensors.values() for record in named.values() for piece in record.pieces}


def _all_bytes(manifest: Manifest) -> int:
    return sum(record.num_bytes for record in manifest.files.values()) + len(manifest.to_json())


def _finish(path: Path, work: Path, small: Manifest, kept: dict[str, FileRecord]) -> None:
    """Link all files that stay, write the manifest last, and make all names durable."""
    for name in (*kept, *({names.PINNED} & set(posix.list_names(path)))):
        posix.make_directory((work / name).parent)
        posix.link_or_copy(path / name, work / name)
    posix.write_file(work / names.MANIFEST, small.to_json())
    for folder in {(work / name).parent for name in (*small.files, names.MANIFEST)}:
        posix.sync_directory(folder)
