"""The file of the learner's own certificate key, which goes along with saved progress and is never handed in. Reads no key.

A saved journal holds it as a line of its own kind; in the journal itself it never stands.
"""

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ckptlab.course import journal

KIND = "certificate-key"
MOST_BYTES = 10_000
# PEM of an Ed25519 key: RFC 8410 leaves nothing open but the last 32 of its 48 bytes
_PEM = re.compile(r"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEI[0-9A-Za-z+/]{43}\n-----END PRIVATE KEY-----\n")


def key_file() -> Path:
    """Return where the learner's own key is, whether it is there or not."""
    return journal.journal_file().with_name("certificate-key.pem")


def to_event() -> list[journal.Event]:
    """Return the key as a line of a saved journal; none when there is no key. The same key gives the same line."""
    try:
        with key_file().open("rb") as file:
            text = file.read(MOST_BYTES).decode("ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        return []
    return [{"v": 1, "at": "", "kind": KIND, "pem": text}]


def restore(events: Iterable[journal.Event]) -> bool | None:
    """Put the key of a saved journal where none is; say whether it was put there, None when it holds none or the same.

    Another key that is there stays: who has published a key needs it.
    """
    for event in events:
        text = event.get("pem")
        if event["kind"] == KIND and isinstance(text, str) and _PEM.fullmatch(text):
            key_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                write_new(key_file(), text.encode())
            except FileExistsError:
                return None if event in to_event() else False
            return True
    return None


def write_new(file: Path, secret: bytes) -> None:
    """Write a file that only its owner may read, as a whole or not at all; raise `FileExistsError` when a file is there."""
    fd, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # mode 0600
    try:
        with os.fdopen(fd, "wb") as new:
            new.write(secret)
            new.flush()
            os.fsync(fd)
        os.link(name, file)  # unlike a rename, never over another file
    finally:
        os.unlink(name)
