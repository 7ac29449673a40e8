"""Checkpoint files on a POSIX file system: read, reserve, write, make durable, rename, remove.

What is opened is a regular file and never reached through a symbolic link in its last part; a FIFO or a device in its
place is a `FormatError`, not a hang. Nothing here knows what the bytes mean, and nothing is retried: an `OSError` passes
through, with the file's name in it. A new file gets mode 0666 less the umask, unlike a temporary file's 0600.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ckptlab.errors import FormatError, StepError
from ckptlab.format.strips import Rows, rows

MAPPED_ROW_BYTES = 2048  # shorter rows go through a mapping: a system call a row costs more than the fault of a page
SYNC_FILE_RANGE_WRITE = 2  # Linux: begin, and wait for nothing
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # Linux
MAPPED_FILE_SYSTEMS = {"ext4", "xfs", "tmpfs"}  # on NFS two machines that map one page overwrite each other's part of it


class File(NamedTuple):
    """An open file: the descriptor, the path for what an error says, and whether it may be written through a mapping."""

    fd: int
    path: Path
    may_be_mapped: bool = False


def exists_directory(path: Path) -> bool:
    """Whether a directory is here; a symbolic link to one does not count, because it leads outside."""
    found = _lstat(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def list_names(path: Path) -> list[str]:
    """List the names in a directory, sorted; none when it is not there."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def size_of(path: Path) -> int | None:
    """Tell the bytes of a regular file; `None` when there is no file or something else stands in its place."""
    found = _lstat(path)
    return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else None


def open_to_read(path: Path) -> AbstractContextManager[File]:
    """Open a regular file, for `read_into`."""
    return _opened(path, os.O_RDONLY)


def read_into(file: File, begin: int, view: memoryview) -> None:
    """Fill the byte view from byte `begin` of the file on; raise `FormatError` when the file ends before."""
    filled = 0
    while filled < len(view):
        with _naming(file.path):
            num_bytes = os.preadv(file.fd, [view[filled:]], begin + filled)
        if num_bytes == 0:
            raise FormatError(f"the file ends at byte {begin + filled}; bytes {begin} to {begin + len(view)} were to be read")
        filled += num_bytes


def read_file(path: Path, at_most: int) -> bytes:
    """Read a small file whole; raise `FormatError` when it has more than `at_most` bytes."""
    with open_to_read(path) as file:
        num_bytes = os.fstat(file.fd).st_size
        if num_bytes > at_most:
            raise FormatError(f"{path} has {num_bytes} bytes; such a file has at most {at_most}")
        data = bytearray(num_bytes)
        read_into(file, 0, memoryview(data))
    return bytes(data)


def make_directory(path: Path) -> None:
    """Make a directory and its parents, unless they are here."""
    path.mkdir(parents=True, exist_ok=True)


def make_directory_durably(path: Path) -> None:
    """Make a directory and its parents, unless they are here, and return when their names are on the disk."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    make_directory(path)
    for directory in missing:
        sync_directory(directory.parent)


@contextmanager
def made_directory(path: Path) -> Iterator[None]:
    """Make a directory and its parents durably; what was made for it and is empty goes again when the work in it fails."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    make_directory_durably(path)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # another process has put something there
            for directory in missing:
                directory.rmdir()
        raise


def make_private_directory(path: Path) -> None:
    """Make a directory and its parents, unless they are here, that only this user can read and write; durably.

    Raises `StepError` when it is a link, or another user's: in /tmp and /dev/shm anybody may make a directory.
    """
    make_directory_durably(path)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise StepError(f"{path} is a link or another user's; give another directory")
    path.chmod(0o700)


def reserve(path: Path, num_bytes: int) -> None:
    """Create a file of `num_bytes`, granted where the file system can: "disk full" comes before the first byte."""
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        os.ftruncate(file.fd, num_bytes)
        if sys.platform == "linux" and num_bytes > 0:
            try:
                os.posix_fallocate(file.fd, 0, num_bytes)
            except OSError as error:  # EBADF: the file system cannot; glibc would write every block, and is kept from reading
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF):
                    raise


@contextmanager
def open_to_write(path: Path) -> Iterator[File]:
    """Open a file that is there already, for `write_at`, `write_rows` and `sync`."""
    with _opened(path, os.O_RDWR) as file:  # what is mapped has to be readable
        yield file._replace(may_be_mapped=_may_be_mapped(file.fd))


def write_at(file: File, begin: int, data: bytes | memoryview) -> None:
    """Write all of `data` (bytes) from byte `begin` of the file on; a system call may take less than it was given."""
    view = memoryview(data)
    assert view.itemsize == 1, "a view of larger items would be cut at items, not at bytes"
    while view:
        with _naming(file.path):
            num_bytes = os.pwrite(file.fd, view, begin)
        view, begin = view[num_bytes:], begin + num_bytes


def write_rows(file: File, begin: int, step: int, data: Rows) -> None:
    """Write all of each row of bytes, `step` bytes apart from byte `begin` of the file on; short rows through a mapping."""
    with _naming(file.path):
        if len(data) > 1 and data.shape[1] < MAPPED_ROW_BYTES and file.may_be_mapped:
            _write_mapped(file, begin, step, data)
            return
        for number, row in enumerate(data):
            at = begin + number * step
            num_bytes = os.pwrite(file.fd, row, at)
            if num_bytes < len(row):
                write_at(file, at + num_bytes, row[num_bytes:].data)


def _write_mapped(file: File, begin: int, step: int, data: Rows) -> None:
    base = begin // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    num_rows, row_bytes = data.shape
    end = begin + (num_rows - 1) * step + row_bytes
    with mmap.mmap(file.fd, end - base, offset=base) as window:
        rows(window, begin - base, row_bytes, num_rows, step)[...] = data


def _may_be_mapped(fd: int) -> bool:
    """Whether the file's space is granted (a full disk under a mapping kills) and no other machine writes into its pages."""
    found = os.fstat(fd)
    return found.st_blocks * 512 >= found.st_size and _file_system(found.st_dev) in MAPPED_FILE_SYSTEMS


def file_system_of(path: Path) -> str:
    """Return the type of the file system that holds a path, such as "ext4"; an empty word where the system does not tell."""
    return _file_system(os.stat(path).st_dev)


def _file_system(device: int) -> str:
    """Return the type of a mounted file system; an empty word where the system does not tell."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return ""
    for fields in map(str.split, mounts.splitlines()):
        if fields[2] == f"{os.major(device)}:{os.minor(device)}":
            return fields[fields.index("-") + 1]
    return ""


def begin_sync(file: File) -> None:
    """Have the system begin to bring to the disk what was written, where it can be asked to; `sync` tells what came of it."""
    if (sync_file_range := _sync_file_range()) is not None:
        sync_file_range(file.fd, 0, 0, SYNC_FILE_RANGE_WRITE)  # up to the end of the file


@cache
def _sync_file_range() -> Any:
    """Return Linux's `sync_file_range`, which Python does not have; None elsewhere."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def sync(file: File) -> None:
    """Return only when what was written is on the disk."""
    with _naming(file.path):
        if sys.platform == "darwin":  # there fsync leaves the bytes in the drive's cache
            fcntl.fcntl(file.fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(file.fd)


def write_file(path: Path, data: bytes) -> None:
    """Create a file with these bytes and make them durable."""
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        write_at(file, 0, data)
        sync(file)


def append_line(path: Path, line: bytes) -> None:
    """Append one line with one `write`, so that lines of several processes never mix."""
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as file:
        if os.write(file.fd, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: files that were created in it, renamed or removed."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(File(fd, path))
    finally:
        os.close(fd)


def rename(source: Path, target: Path) -> None:
    """Rename; raise `FileExistsError` when something is at the target, which `os.rename` may overwrite."""
    if _lstat(target) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    source.rename(target)


def exchange(one: Path, other: Path) -> bool:
    """Let two names change places at one moment; return False where the system or the file system cannot."""
    if (renameat2 := _renameat2()) is None:
        return False
    if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(one))


@cache
def _renameat2() -> Any:
    """Return Linux's `renameat2`, which Python does not have; None elsewhere."""
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file that never changes a second name, which needs no space; copy it where that cannot be."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        with _opened(source, os.O_RDONLY) as old, _opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as new:
            with open(old.fd, "rb", closefd=False) as reader, open(new.fd, "wb", closefd=False) as writer:
                shutil.copyfileobj(reader, writer)
            sync(new)


def cut(file: File, num_bytes: int) -> None:
    """Let a file that is open to be written have so many bytes."""
    with _naming(file.path):
        os.ftruncate(file.fd, num_bytes)


def remove_file(path: Path) -> None:
    """Remove a file, or the link in its place; nothing happens when it is not here."""
    path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it; symbolic links in it are removed, not followed."""
    shutil.rmtree(path)


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Give an `OSError` the file's name: `pwrite` and `fsync` know only the descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[File]:
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)  # without O_NONBLOCK a FIFO waits for its other end
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise FormatError(f"{path} is a link or a FIFO, not a regular file") from error
    try:
        with _naming(path):
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FormatError(f"{path} is not a regular file")
            yield File(fd, path)
    finally:
        with _naming(path):  # NFS tells here what it could not write
            os.close(fd)
