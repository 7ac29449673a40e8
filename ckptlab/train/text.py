"""What the reference job trains on: the source of the Python that runs it, or any folder. No torch; see `windows`.

Nothing is downloaded, and nothing is random: files come in sorted order, so that the same folder always gives the same text.
"""

import hashlib
import os
import stat
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ckptlab.errors import UsageError

CONTEXT = 128  # bytes that the model sees in one sample
MAX_TEXT_BYTES = 8_000_000  # enough for 60,000 samples, and read in a tenth of a second
NOT_THE_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idle_test"}


@dataclass(frozen=True, slots=True)
class Text:
    """Bytes to train on. `fingerprint` is a SHA-256 of the bytes and of the names of the files they came from."""

    folder: Path
    data: bytes
    fingerprint: str

    @property
    def num_samples(self) -> int:
        """Count the windows of CONTEXT + 1 bytes, of which two neighbours share one byte."""
        return (len(self.data) - 1) // CONTEXT


def read_text(folder: Path | None = None) -> Text:
    """Read at most MAX_TEXT_BYTES from the folder, or from Python's own library (any process; every rank reads the same).

    Raises:
        UsageError: the folder is not there, or holds less text than one sample needs.
    """
    root = folder or Path(sysconfig.get_path("stdlib"))
    if not root.is_dir():
        raise UsageError(f"text: {root} is not a folder; give one that holds text files")
    data, digest = bytearray(), hashlib.sha256()
    for path in python_sources(root) if folder is None else text_files(root):
        part = path.read_bytes()[: MAX_TEXT_BYTES - len(data)]
        name = path.relative_to(root).as_posix()
        digest.update(f"{name}\0{len(part)}\0".encode("utf-8", "surrogateescape") + part)
        data += part
        if len(data) == MAX_TEXT_BYTES:
            break
    if len(data) <= CONTEXT:
        raise UsageError(
            f"text: {root} holds {len(data)} bytes of text, one sample needs {CONTEXT + 1}; give a folder with more"
        )
    return Text(root, bytes(data), f"sha256:{digest.hexdigest()}")


def python_sources(library: Path) -> Iterator[Path]:
    """Python's own modules, without what others installed and without the tests."""
    return (path for path in regular_files(library, leave_out=NOT_THE_LIBRARY) if path.suffix == ".py")


def text_files(folder: Path) -> Iterator[Path]:
    """Every file below the folder that begins as text: binary files (pictures, byte code) hold zero bytes."""
    for path in regular_files(folder, leave_out=set()):
        with path.open("rb") as file:
            if b"\0" not in file.read(8192):
                yield path


def regular_files(folder: Path, leave_out: set[str]) -> Iterator[Path]:
    """Regular files, no links, without hidden names: sorted by name, a folder's own files before those of its folders."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in leave_out and not name.startswith("."))
        for path in (Path(parent, name) for name in sorted(names) if not name.startswith(".")):
            if stat.S_ISREG(path.lstat().st_mode):
                yield path
