"""`manifest.json`: every file of a step with its block sums, every tensor with its pieces; written last.

Reading refuses what no correct writer writes, and whatever a later version may mean otherwise.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from ckptlab.errors import FormatError
from ckptlab.format.codecs import XOR
from ckptlab.format.header import check_tensor_name
from ckptlab.format.names import PIECES, SECTIONS, STATE, check_file_name
from ckptlab.format.records import Encoding, FileRecord, TensorRecord
from ckptlab.format.strict_json import (
    as_mapping,
    as_natural,
    as_record,
    as_text,
    check_size,
    dump_json,
    dump_sorted,
    parse_json,
    refuse,
)

FORMAT, VERSION = "ckptlab", 1
MAX_MANIFEST_BYTES = 64 * 2**20
SMALL_OF = "small_of"  # in `saved_by` of a step that was made small
MAX_BLOCK_BYTES = 64 * 2**20  # a reader holds one block in memory
CONVERTED_FROM = "converted_from"  # in `saved_by`: the system whose checkpoint this was


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that a committed step says of itself; `tensors` by section (`model`, `optim`), then by name."""

    step: int
    parent: int | None
    block_bytes: int
    files: Mapping[str, FileRecord]
    tensors: Mapping[str, Mapping[str, TensorRecord]]
    aliases: Mapping[str, str]
    saved_by: Mapping[str, object]
    exact_if: Mapping[str, object]

    @property
    def base(self) -> int | None:
        """The step that this one cannot be read without; `None` when it can."""
        return self.parent if any(encoding.codec == XOR for _, _, encoding in self.encoded()) else None

    @property
    def inexact(self) -> list[str]:
        """The tensors whose values are not bitwise those that were saved."""
        return [name for _, name, encoding in self.encoded() if not encoding.is_exact]

    def encoded(self) -> Iterator[tuple[str, str, Encoding]]:
        """Yield the tensors that have a codec: section, name, and how they are encoded."""
        for section, named in self.tensors.items():
            for name, record in named.items():
                if record.encoding is not None:
                    yield section, name, record.encoding

    @property
    def original(self) -> str:
        """The sum of the manifest that the step had when it was saved: the same in every form that it was given since."""
        told = self.saved_by.get(SMALL_OF)
        return told if isinstance(told, str) else _self_sum(self._document())

    def to_json(self) -> bytes:
        """Write the bytes of `manifest.json`: names sorted, no time, host, user or path."""
        document = self._document()
        data = dump_json({**document, "crc32": _self_sum(document)})
        check_size(data, "manifest", MAX_MANIFEST_BYTES)
        return data

    def _document(self) -> dict[str, object]:
        tensors = {
            section: {name: record.to_json() for name, record in sorted(self.tensors[section].items())} for section in SECTIONS
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            "step": self.step,
            "parent": self.parent,
            "block_bytes": self.block_bytes,
            "files": {name: record.to_json() for name, record in sorted(self.files.items())},
            "tensors": tensors,
            "aliases": dict(sorted(self.aliases.items())),
            "saved_by": dict(self.saved_by),
            "exact_if": dict(self.exact_if),
        }

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read the bytes of `manifest.json`; a `FormatError` for anything that is not a sound manifest of format 1."""
        record = _parse_envelope(data)
        block_bytes = as_natural(record["block_bytes"], "manifest: block_bytes", MAX_BLOCK_BYTES + 1)
        if block_bytes == 0:
            refuse(0, "manifest: block_bytes", "at least 1")
        files = _parse_files(record["files"], block_bytes)
        sections = as_record(record["tensors"], "manifest: tensors", SECTIONS)
        tensors = {section: _parse_section(section, sections[section], files) for section in SECTIONS}
        _check_apart(tensors)
        step = as_natural(record["step"], "manifest: step")
        found = cls(
            step=step,
            parent=None if record["parent"] is None else as_natural(record["parent"], "manifest: parent"),
            block_bytes=block_bytes,
            files=files,
            tensors=tensors,
            aliases=_parse_aliases(record["aliases"], tensors["model"]),
            saved_by=as_mapping(record["saved_by"], "manifest: saved_by"),
            exact_if=as_mapping(record["exact_if"], "manifest: exact_if"),
        )
        is_delta = any(encoding.codec == XOR for _, _, encoding in found.encoded())
        if is_delta and (found.parent is None or found.parent >= step):  # so that no chain of steps is a circle
            refuse(found.parent, "manifest: parent", f"a step before {step}: tensors are stored against it")
        return found


def _self_sum(document: dict[str, object]) -> str:
    return f"{zlib.crc32(dump_sorted(document)):08x}"


def _parse_envelope(data: bytes) -> dict[str, object]:
    """Check format, version and the sum of itself before any member, so that damage is told as damage."""
    document = as_mapping(parse_json(data, "manifest", MAX_MANIFEST_BYTES), "manifest")
    if document.get("format") != FORMAT:
        refuse(document.get("format"), "manifest: format", repr(FORMAT))
    version = as_natural(document.get("version"), "manifest: version")
    if version != VERSION:
        raise FormatError(f"manifest: version {version}, expected {VERSION}; use the ckptlab that wrote it, or a newer one")
    body = {name: value for name, value in document.items() if name != "crc32"}
    if document.get("crc32") != (found := _self_sum(body)):
        refuse(document.get("crc32"), "manifest: damaged: crc32", f"{found!r} for its own text")
    return as_record(document, "manifest", ("format", "version", *Manifest.__dataclass_fields__, "crc32"))


def _parse_files(value: object, block_bytes: int) -> dict[str, FileRecord]:
    records = as_mapping(value, "manifest: files")
    for name in records:
        check_file_name(name)
    if STATE not in records:
        refuse(sorted(records)[:5], "manifest: files", f"{STATE!r} among them")
    return {name: FileRecord.parse(record, f"manifest: files: {name}", block_bytes) for name, record in records.items()}


def _parse_section(section: str, value: object, files: Mapping[str, FileRecord]) -> dict[str, TensorRecord]:
    tensors = {}
    for name, item in as_mapping(value, f"manifest: tensors: {section}").items():
        where = f"manifest: tensors: {section}: {name!r}"
        check_tensor_name(name)
        tensors[name] = TensorRecord.parse(item, where)
        for file, _, end in tensors[name].spans():
            folders = (f"{PIECES}/",) if tensors[name].encoding is not None else (f"{section}/", f"{PIECES}/")
            if file not in files or not file.startswith(folders):
                refuse(file, f"{where}: pieces: file", f"a listed file in {' or '.join(folders)}")
            if end > files[file].num_bytes:
                raise FormatError(f"{where}: ends at byte {end} of {file}, which has {files[file].num_bytes}")
    return tensors


def _check_apart(tensors: Mapping[str, Mapping[str, TensorRecord]]) -> None:
    """Refuse two pieces that share bytes of a file."""
    spans = sorted(_named_spans(tensors))
    for (file, _, end, name), (next_file, begin, _, next_name) in pairwise(spans):
        if file == next_file and begin < end:
            raise FormatError(f"manifest: tensors {name!r} and {next_name!r} share byte {begin} of {file}")


def _named_spans(tensors: Mapping[str, Mapping[str, TensorRecord]]) -> Iterator[tuple[str, int, int, str]]:
    for section in tensors.values():
        for name, record in section.items():
            yield from ((file, begin, end, name) for file, begin, end in record.spans() if begin < end)


def _parse_aliases(value: object, model: Mapping[str, TensorRecord]) -> dict[str, str]:
    aliases = {}
    for name, target in as_mapping(value, "manifest: aliases").items():
        check_tensor_name(name)
        aliases[name] = as_text(target, f"manifest: aliases: {name!r}")
        if name in model or aliases[name] not in model:
            refuse(target, f"manifest: aliases: {name!r}", "a tensor of model, and the alias itself to be none")
    return aliases
