"""Read checkpoint files wherever they are: on a disk, or in an object store. The type of the path says which.

This is all that steps and loads ask of a place. What changes a run on disk calls `posix`; a push fills a store.
"""

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ckptlab.errors import FormatError, UsageError
from ckptlab.storage import posix
from ckptlab.storage.object_path import ObjectPath, parse_address

Place = Path | ObjectPath
File = posix.File | ObjectPath


def place(named: str | os.PathLike[str] | ObjectPath) -> Place:
    """Give the place that a person named: `s3://bucket/runs/mine`, or a path on disk; nothing is looked up.

    Raises `UsageError` when the address is none, or `obstore` is not installed.
    """
    if isinstance(named, ObjectPath):
        return named
    if not (isinstance(named, str) and "://" in named):
        return Path(named)
    bucket, key = parse_address(named)
    try:
        from ckptlab.storage import objects  # here, because only who names a store needs obstore
    except ImportError as error:
        raise UsageError(f"addresses like {named} need obstore, which is not installed: pip install obstore") from error
    return ObjectPath(f"s3://{bucket}", key, objects.connect(bucket))


def on_disk(named: str | os.PathLike[str]) -> Path:
    """Give the path on disk that a person named; raise `UsageError` for an address, which would name a directory `s3:`."""
    if re.match("[a-z0-9]+:/", str(named)):  # a Path of an address has lost a slash
        raise UsageError(
            "a run is trained on a disk that all ranks share; tiers=[ObjectStore(…)] or `ckptlab push` puts steps into a store"
        )
    return Path(named)


def absolute(path: Place) -> Place:
    """Give the path from the root, without links being followed."""
    return path if isinstance(path, ObjectPath) else Path(os.path.abspath(path))


def is_directory(path: Place) -> bool:
    """Whether a directory is where a person named one; there it may be a link."""
    return exists_directory(path) if isinstance(path, ObjectPath) else path.is_dir()


def exists_directory(path: Place) -> bool:
    """Whether a directory is here; in a store: whether anything is under this key."""
    return bool(list_names(path)) if isinstance(path, ObjectPath) else posix.exists_directory(path)


def is_own_folder(path: Place) -> bool:
    """Whether a folder of a step is one, and no link that leads outside it; a store has only keys."""
    return isinstance(path, ObjectPath) or posix.exists_directory(path)


def exists(path: Place) -> bool:
    """Whether anything is here, a broken link too."""
    return exists_directory(path) or size_of(path) is not None if isinstance(path, ObjectPath) else os.path.lexists(path)


def list_names(path: Place) -> list[str]:
    """List the names in a directory, sorted; none when it is not there."""
    return path.store.list_names(path.key) if isinstance(path, ObjectPath) else posix.list_names(path)


def size_of(path: Place) -> int | None:
    """Tell the bytes of a file; `None` when there is none."""
    if not isinstance(path, ObjectPath):
        return posix.size_of(path)
    head = path.store.head(path.key)
    return head.num_bytes if head else None


def listed_sizes(path: Place) -> Mapping[str, int]:
    """Tell the bytes of all files under a directory in one request; nothing on disk, where `size_of` costs none."""
    return path.store.sizes(path.key) if isinstance(path, ObjectPath) else {}


def open_to_read(path: Place) -> AbstractContextManager[File]:
    """Open a file, for `read_into`; in a store nothing is held open, and only what is read is fetched."""
    return nullcontext(path) if isinstance(path, ObjectPath) else posix.open_to_read(path)


def read_into(file: File, begin: int, view: memoryview) -> None:
    """Fill the byte view from byte `begin` of the file on; raise `FormatError` when the file ends before."""
    if not isinstance(file, ObjectPath):
        return posix.read_into(file, begin, view)
    data = file.store.read(file.key, begin, begin + len(view)) if view else memoryview(b"")
    if len(data) != len(view):
        raise FormatError(f"the store gave {len(data)} bytes; bytes {begin} to {begin + len(view)} were to be read")
    view[:] = data
    return None


def read_file(path: Place, at_most: int) -> bytes:
    """Read a small file whole; raise `FormatError` when it has more than `at_most` bytes."""
    if not isinstance(path, ObjectPath):
        return posix.read_file(path, at_most)
    num_bytes = size_of(path)
    if num_bytes is None:
        raise FileNotFoundError(f"{path} is not in the store")
    if num_bytes > at_most:
        raise FormatError(f"{path} has {num_bytes} bytes; such a file has at most {at_most}")
    data = bytearray(num_bytes)
    read_into(path, 0, memoryview(data))
    return bytes(data)
