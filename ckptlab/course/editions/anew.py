"""A folder that is made anew: built beside, put in its place when it is whole, and never in the place of somebody's own.

`python -m ckptlab.course.editions.anew check FOLDER | put NEW FOLDER` is for `offline.sh`.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckptlab.errors import UsageError

MARKER = ".made-by-make"  # stands in what may be replaced


@contextmanager
def made_anew(folder: Path) -> Iterator[Path]:
    """Give an empty folder to build in; it takes the place of `folder` at the end, unless the building has failed.

    Raises:
        UsageError: what is there was not made in this way.
        OSError: it could not be put there; what was there is there still.
    """
    check(folder)
    new = _beside(folder, "new")
    new.mkdir(parents=True)
    try:
        yield new
        put(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def check(folder: Path) -> None:
    """Refuse to replace what is neither empty nor made here."""
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and _may_go(folder))):
        raise UsageError(f"{folder} is there and was not made by this command: move it away, or delete it if it is of no use")


def put(new: Path, folder: Path) -> None:
    """Mark a folder as made here, and give it the place of another one that may be replaced."""
    check(folder)
    (new / MARKER).touch()
    old = _beside(folder, "old")
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f"{folder.name}.{what}-{os.getpid()}")


def _may_go(folder: Path) -> bool:
    return (folder / MARKER).is_file() or not any(folder.iterdir())


def main(arguments: list[str]) -> None:
    """Do what `offline.sh` asks for."""
    match arguments:
        case ["check", folder]:
            check(Path(folder))
        case ["put", new, folder]:
            put(Path(new), Path(folder))
        case _:
            raise UsageError("write check FOLDER, or put NEW FOLDER")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (UsageError, OSError) as error:
        sys.exit(f"error: {error}")
