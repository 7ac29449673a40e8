"""The items of a DCP checkpoint, read: tensors piece by piece into their place, and plain values."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from ckptlab.errors import FormatError, LoadError
from ckptlab.format.exact import MAX_TENSOR_BYTES
from ckptlab.format.header import TensorSpec
from ckptlab.interop.dcp_metadata import Entry, KeyPath, Piece, Place, PlainEntry
from ckptlab.interop.dcp_optimizer import GROUPS, Value
from ckptlab.interop.foreign import blank
from ckptlab.interop.torch_archive import Archive, SavedTensor, with_tensors
from ckptlab.storage.posix import open_to_read


def leaf_of(folder: Path, at: KeyPath, entry: Entry | PlainEntry) -> Entry | Value:
    """Read plain values, and tensors among the settings of a param group; leave the others for later."""
    if isinstance(entry, Entry):
        is_setting = any(str(key).partition(".")[0] == GROUPS for key in at) and entry.spec.num_bytes <= MAX_TENSOR_BYTES
        return Value(read_tensor(folder, entry)) if is_setting else entry
    try:
        with _archive(folder, entry.name, entry.place) as archive:
            return Value(with_tensors(archive.value(), archive.small))
    except LoadError as error:
        return Value(unread=str(error))


def read_tensor(folder: Path, entry: Entry) -> Tensor:
    """Read a tensor whole, piece by piece into its place.

    Raises:
        LoadError: a file is not there any more, or does not hold what the metadata says.
    """
    tensor = blank(entry.spec)
    for piece in entry.pieces:
        with _archive(folder, entry.name, piece.place) as archive:
            saved, expected = archive.value(), TensorSpec(entry.spec.dtype, piece.box.shape)
            if not isinstance(saved, SavedTensor) or saved.spec != expected:
                told = saved.spec if isinstance(saved, SavedTensor) else type(saved).__name__
                raise LoadError(f"{folder / piece.place.file}: {entry.name!r:.199} is {told}, the metadata says {expected}")
            archive.read(saved, _part(tensor, piece))
    return tensor


def _part(tensor: Tensor, piece: Piece) -> Tensor:
    for dim, (at, size) in enumerate(zip(piece.box.offset, piece.box.shape, strict=True)):
        tensor = tensor.narrow(dim, at, size)
    return tensor


@contextmanager
def _archive(folder: Path, name: str, place: Place) -> Iterator[Archive]:
    where = f"{folder / place.file}: {name!r:.199}"
    try:
        with open_to_read(folder / place.file) as file:
            yield Archive(file, place.begin, place.length, where)
    except (FormatError, FileNotFoundError) as error:
        raise LoadError(f"{where}: {error}") from None
