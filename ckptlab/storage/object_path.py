"""An address in an object store, used like a `Path`; and the contract: what is asked of such a store.

Pure: an `ObjectPath` only carries the store along that `ckptlab.storage.store` asks for what is there.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self

from ckptlab.errors import UsageError

SCHEME = "s3://"


class Head(NamedTuple):
    """An object's bytes, and the CRC-32 that whoever put it gave with it."""

    num_bytes: int
    crc32: int | None


class Store(Protocol):
    """A bucket: the seven things that are asked of it.

    Keys are plain, with `/` between their parts. Each raises `StoreError` when the store does not answer in bounded time,
    refuses, or has no such bucket.
    """

    def list_names(self, key: str) -> list[str]:
        """List what is directly under a key, as in a directory, sorted; nothing when there is nothing."""

    def sizes(self, key: str) -> Mapping[str, int]:
        """Map everything under a key, by the rest of its key, to its bytes: one request for a thousand."""

    def head(self, key: str) -> Head | None:
        """Tell about one object; `None` when it is not there."""

    def read(self, key: str, begin: int, end: int) -> memoryview:
        """Read a range, fewer bytes where the object ends before; raise `FileNotFoundError` when there is no object."""

    def put(self, key: str, blocks: Iterator[bytes], head: Head) -> None:
        """Put an object, in parts where it is large. It is there whole or not at all, also when the iterator raises."""

    def create(self, key: str, data: bytes) -> bool:
        """Put a small object only if none is there, as one step; tell whether it was put."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; one that is not there is no error. Broken off, some of them are gone."""


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """What stands at `address/key`: an object, or everything whose key begins so."""

    address: str
    key: str
    store: Store = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> Self:
        """The address without its last part."""
        return replace(self, key=self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> Self:
        return replace(self, key=f"{self.key}/{name}".strip("/"))

    def __str__(self) -> str:
        return f"{self.address}/{self.key}".rstrip("/")


def parse_address(text: str) -> tuple[str, str]:
    """Split `s3://bucket/runs/mine` into bucket and key; raise `UsageError` when it is none.

    The text is not repeated: a person may have put a password into it.
    """
    bucket, _, key = text.removeprefix(SCHEME).partition("/")
    parts = key.strip("/").split("/") if key.strip("/") else []
    if not text.startswith(SCHEME) or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        raise UsageError("that is no address of an object store that is known here; expected one like s3://bucket/runs/mine")
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts):
        raise UsageError(
            f"the key in {SCHEME}{bucket}/… has an empty part, a '.' or '..'; write it plainly: s3://bucket/runs/mine"
        )
    return bucket, "/".join(parts)
