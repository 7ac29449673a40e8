"""A folder of another system: what may be a name in it, and one that is made whole or not at all."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard

from ckptlab.checkpoint.collectives import attempt_or_warn
from ckptlab.storage import on_disk, posix


def is_plain(name: object) -> TypeGuard[str]:
    """Whether what a file says is a name of something in its own folder: it leads nowhere else, on any system."""
    return isinstance(name, str) and name not in ("", ".", "..") and not {"/", "\\"} & set(name) and name.isprintable()


@contextmanager
def new_folder(target: Path, inside: str = "") -> Iterator[Path]:
    """Yield a temporary directory beside `target`; when the work is done, it or a folder `inside` it becomes the target.

    The files in it have to be durable by then; their names are made so here. After an error nothing is left.

    Raises:
        FileExistsError: something is at the target.
    """
    target = Path(os.path.abspath(on_disk(target)))
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "is there already; name a folder that is not", str(target))
    with posix.made_directory(target.parent):
        temporary = target.with_name(f".tmp-{target.name}-{secrets.token_hex(4)}")
        posix.make_directory(temporary)
        try:
            yield temporary
            posix.sync_directory(temporary / inside)
            posix.rename(temporary / inside, target)
            posix.sync_directory(target.parent)
        finally:
            if posix.exists_directory(temporary):
                attempt_or_warn(f"{temporary} was not removed", lambda: posix.remove_tree(temporary))
