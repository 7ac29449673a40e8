"""One process at a time changes a run: a lock on `RUN/.lock` that ends with the process, also by SIGKILL.

It is a record lock (`lockf`), not `flock`: forked loader workers inherit the latter and would hold the run after their
parent died. The price: such a lock belongs to the process, and closing *any* descriptor of the file drops it. So what
this process holds is remembered here, and nobody else opens the file.
"""

import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

from ckptlab.errors import StepError
from ckptlab.format.names import LOCK


class RunLock:
    """The right to change a run, from `take` to `release` or the end of the process."""

    _held: ClassVar[set[Path]] = set()  # by this process

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    def take(cls, run: Path, name: str = LOCK) -> Self:
        """Take the lock of the run in this directory (coordinator only); raise `StepError` when another process has it.

        `name` is the lock's: of the right to change the run, or of another one.
        """
        path = run.resolve() / name
        if path in cls._held:
            raise StepError(f"{run} is in use by this process; close the Checkpointer that has it first")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 200, 0).decode(errors="replace")
            os.close(fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                error.filename = str(path)
                raise
            raise StepError(f"{run} is in use by {holder}; end that process or save into another directory") from error
        with suppress(OSError):  # only for what a second process is told; on a full disk a run can still be resumed
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        cls._held.add(path)
        return cls(path, fd)

    def check(self) -> None:
        """Raise `StepError` when the lock's file is gone or another: then a second process may have taken the run."""
        try:
            same = os.path.samestat(os.fstat(self._fd), self._path.lstat())
        except OSError:
            same = False
        if not same:
            raise StepError(f"{self._path.parent} was removed or replaced while this process was using it; start it again")

    def release(self) -> None:
        """Let another process take the lock; the file stays, because removing it would let two processes hold two files."""
        os.close(self._fd)
        self._held.discard(self._path)
