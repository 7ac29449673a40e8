"""What `.metadata` of a DCP checkpoint says: which tensors and values there are, and in which bytes of which files.

DCP pickles its own classes. They are read into stand-ins that hold whatever the pickle has, and every part that is used is
checked: names of files, places in them, and that the pieces of a tensor make up the whole of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from reprlib import repr as short
from typing import Any

from ckptlab.checkpoint.tensor_bytes import DTYPE_NAMES
from ckptlab.errors import FormatError, LoadError
from ckptlab.format.boxes import Box, check_tiling
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.exact import MAX_DEPTH
from ckptlab.format.header import MAX_DIMS, TensorSpec
from ckptlab.format.strict_json import LIMIT
from ckptlab.interop.dcp_classes import Index, SavedTensorMetadata, SavedValueMetadata, stand_ins
from ckptlab.interop.folder import is_plain
from ckptlab.interop.unpickle import loads
from ckptlab.storage.posix import read_file, size_of

METADATA = ".metadata"
MAX_METADATA_BYTES = 2**29

KeyPath = tuple[str | int, ...]
"""Where something stood in the nested state dict that was saved."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item is stored, as an archive of torch.save: the file's name in the folder, and which bytes of it."""

    file: str
    begin: int
    length: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor, and where it is stored."""

    box: Box
    place: Place


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor: its name in the checkpoint, and its pieces, which make up the whole of it."""

    name: str
    spec: TensorSpec
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class PlainEntry:
    """A value that is no tensor: its name in the checkpoint, and where it is stored."""

    name: str
    place: Place


def read_metadata(folder: Path) -> dict[KeyPath, Entry | PlainEntry]:
    """Read and check what a checkpoint says of itself; no `.distcp` file is opened.

    Raises:
        LoadError: it is no checkpoint of DCP, or its parts do not fit together or to the files; says which.
    """
    where = folder / METADATA
    metadata = loads(_bytes_of(where), stand_ins(), str(where))
    entries, storage, paths = (
        getattr(metadata, name, None) for name in ("state_dict_metadata", "storage_data", "planner_data")
    )
    if not isinstance(entries, dict) or not isinstance(storage, dict) or not isinstance(paths or {}, Mapping):
        raise LoadError(f"{where}: no tensors and places of DCP's kind in it; was it written by torch.distributed.checkpoint?")
    reader, paths = _Reader(folder, storage), paths or {}
    order = {name: number for number, name in enumerate(paths)}  # as the job had it: the entries themselves come rank by rank
    read: dict[KeyPath, Entry | PlainEntry] = {}
    for name, found in sorted(entries.items(), key=lambda item: order.get(item[0], len(order))):
        entry = reader.entry(name, found)
        read[_key_path(paths.get(name, (name,)), entry.name, where)] = entry
    reader.check_places()
    return read


def _bytes_of(where: Path) -> bytes:
    if size_of(where) is None:
        raise LoadError(
            f"{where} is not there or no regular file: expected the folder that dcp.save wrote, with `.metadata` in it, which "
            f"is written last; a save that broke off has none"
        )
    try:
        return read_file(where, MAX_METADATA_BYTES)
    except FormatError as error:
        raise LoadError(str(error)) from None


class _Reader:
    """Makes entries of what the metadata says, held against the files of the folder."""

    def __init__(self, folder: Path, storage: dict[Any, Any]) -> None:
        self._folder, self._storage = folder, storage
        self._sizes: dict[str, int] = {}
        self._used: dict[Index, Place] = {}

    def entry(self, name: object, found: object) -> Entry | PlainEntry:
        where = f"{self._folder / METADATA}: {short(name)}"
        if not isinstance(name, str) or not isinstance(found, (SavedTensorMetadata, SavedValueMetadata)):
            raise LoadError(f"{where}: neither a tensor nor a plain value")
        try:
            if isinstance(found, SavedValueMetadata):
                return PlainEntry(name, self._place(Index(name)))
            spec = _spec(found)
            pieces = tuple(self._pieces(name, spec, found))
            check_tiling(spec.shape, [piece.box for piece in pieces])
        except (FormatError, AttributeError, TypeError) as error:
            raise LoadError(f"{where}: {error}") from None
        return Entry(name, spec, tuple(piece for piece in pieces if piece.box.num_elements))

    def check_places(self) -> None:
        """Refuse metadata that has a place of something that it does not describe, or two things in the same bytes."""
        where = self._folder / METADATA
        if unused := [index for index in self._storage if index not in self._used]:
            name = getattr(unused[0], "fqn", unused[0])
            raise LoadError(f"{where}: {short(name)} is stored, and not among what the checkpoint holds")
        in_order = sorted(self._used.items(), key=lambda item: (item[1].file, item[1].begin))
        for (index, place), (other, next_place) in pairwise(in_order):
            if place.file == next_place.file and next_place.begin < place.begin + place.length:
                raise LoadError(f"{where}: {short(index.fqn)} and {short(other.fqn)} lie in the same bytes of {place.file}")

    def _pieces(self, name: str, spec: TensorSpec, found: SavedTensorMetadata) -> Iterator[Piece]:
        if not isinstance(found.chunks, list):
            raise FormatError("no list of chunks")
        for chunk in found.chunks:
            box = Box(_numbers(chunk.offsets), _numbers(chunk.sizes))
            place = self._place(Index(name, box.offset))
            if place.length < box.num_elements * ITEM_BYTES[spec.dtype]:
                raise FormatError(f"a chunk of {list(box.shape)} {spec.dtype} in {place.length} bytes of {place.file}")
            yield Piece(box, place)

    def _place(self, index: Index) -> Place:
        info = self._storage.get(index)
        if info is None:
            raise FormatError(f"the chunk at {list(index.offset or ())} is in no file")
        if getattr(info, "transform_descriptors", None):
            raise FormatError(
                f"compressed by the extension {short(info.transform_descriptors)}; load it with DCP, save it without that"
            )
        begin, length = _numbers((info.offset, info.length))
        if begin + length > self._size(info.relative_path):
            raise FormatError(
                f"bytes {begin} to {begin + length} of {info.relative_path}, which has {self._size(info.relative_path)}: "
                f"the file was cut short or is of another checkpoint"
            )
        self._used[index] = Place(info.relative_path, begin, length)
        return self._used[index]

    def _size(self, name: object) -> int:
        if not is_plain(name):
            raise FormatError(f"the file {short(name)}: expected a plain name in the folder")
        if name not in self._sizes:
            size = size_of(self._folder / name)
            if size is None:
                raise FormatError(f"the file {name} is not in the folder, or is no regular file")
            self._sizes[name] = size
        return self._sizes[name]


def _spec(found: SavedTensorMetadata) -> TensorSpec:
    dtype, shape = found.properties.dtype, _numbers(found.size)
    if dtype not in DTYPE_NAMES:
        raise FormatError(f"{dtype} cannot be kept: safetensors has {', '.join(ITEM_BYTES)}")
    return TensorSpec(DTYPE_NAMES[dtype], shape)


def _numbers(found: Any) -> tuple[int, ...]:
    is_short = isinstance(found, tuple) and len(found) <= MAX_DIMS
    if not is_short or not all(type(number) is int and 0 <= number < LIMIT for number in found):
        raise FormatError(f"{short(found)}: expected at most {MAX_DIMS} integers from 0 to 2**63 - 1")
    return tuple(found)


def _key_path(found: Any, name: str, where: Path) -> KeyPath:
    """Check a place in the state dict: DCP's name of what stands there is its keys, joined."""
    is_path = isinstance(found, tuple) and 0 < len(found) <= MAX_DEPTH and all(type(key) in (str, int) for key in found)
    path: KeyPath = tuple(found) if is_path else ()
    if ".".join(map(str, path)) != name:
        raise LoadError(f"{where}: {short(name)} stands at {short(found)} in the state dict, expected the keys that it names")
    return path
