"""A program run apart: it gets only what it needs, cannot keep us waiting, and in the end is gone with all that it started."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_BYTES = 1 << 16  # of one line
_PR_SET_CHILD_SUBREAPER = 36
_DELETE = 'rm -rf -- "$1" || { find "$1" -type d -exec chmod u+rwx {} ";"; rm -rf -- "$1"; }'  # however deep it is


class Lines:
    """The lines that a program writes to its standard output."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._read = b""

    def next(self, seconds: float) -> bytes | None:
        """Wait for the next line; None if it does not come in time or is too long, or if the program is gone."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._read:
            left = deadline - time.monotonic()
            if left <= 0 or len(self._read) > MOST_BYTES or not select.select([self._fd], [], [], left)[0]:
                return None
            if not (more := os.read(self._fd, MOST_BYTES)):
                return None
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line


@contextmanager
def run_apart(module: str, given: bytes, environment: Mapping[str, str]) -> Iterator[Lines]:
    """Run `python -m module` in a session of its own and in an empty folder, which is its home and is deleted afterwards.

    Args:
        module: what to run; it finds the modules that this process finds.
        given: its standard input.
        environment: all that it gets, besides its home.
    """
    folder = tempfile.mkdtemp(prefix="ckptlab-apart-")
    homes = dict.fromkeys(("HOME", "CKPTLAB_HOME", "TMPDIR"), folder)
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    try:
        with _strays_ended(), tempfile.TemporaryFile() as file:
            try:
                file.write(given)
                file.seek(0)
            except OSError as error:  # a full disk
                raise OSError(error.errno, error.strerror, folder) from None
            with subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                cwd=folder,
                env={**environment, **homes, "PYTHONPATH": path},
                start_new_session=True,
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ) as process:
                try:
                    assert process.stdout is not None, "it is a pipe"
                    yield Lines(process.stdout.fileno())
                finally:
                    process.kill()
    finally:
        subprocess.run(["sh", "-c", _DELETE, "sh", folder], stderr=subprocess.DEVNULL, check=False)


@contextmanager
def _strays_ended() -> Iterator[None]:
    """On leaving, end what was started and left behind (Linux).

    One that goes on computing would take the time of what runs next, which would then be told that it is too slow.
    """
    if sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # so that these come to be children of this process
    seen = _children_of_other_sessions()
    try:
        yield
    finally:
        while strays := _children_of_other_sessions() - seen:  # their children come next
            for pid in strays:
                with suppress(ProcessLookupError, ChildProcessError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            seen |= strays  # one of another user stays
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _children_of_other_sessions() -> set[int]:
    mine, session, found = os.getpid(), os.getsid(0), set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()  # a process's name may be no text
            if int(fields[1]) == mine and int(fields[3]) != session:
                found.add(int(process.name))
    return found
