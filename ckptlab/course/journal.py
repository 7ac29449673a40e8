"""`journal.jsonl`: everything that the learner did, a line an event, only ever appended to.

All that is known of a learner is computed from it. It lies in the user's data folder, or in `CKPTLAB_HOME`; several notebooks
may append at once. A line that does not parse costs nothing but itself: the file is kept beside as `journal-….damaged`.
"""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

Event = dict[str, object]  # "v", "at", "kind", and what belongs to the kind


def journal_file() -> Path:
    """Return where the journal is, whether it is there or not."""
    home = os.environ.get("CKPTLAB_HOME") or os.environ.get("XDG_DATA_HOME")
    return Path(home or Path.home() / ".local/share") / ("" if os.environ.get("CKPTLAB_HOME") else "ckptlab") / "journal.jsonl"


def append(kind: str, **members: object) -> None:
    """Append one event of now; it is on the disk on return."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    append_all([{"v": 1, "at": now, "kind": kind, **members}])


def append_all(events: Sequence[Event]) -> None:
    """Append events as they are: all of them, or none when the disk is full."""
    text = to_lines(events)
    with _locked(os.O_APPEND) as fd:
        end = os.fstat(fd).st_size
        if end and os.pread(fd, 1, end - 1) != b"\n":  # a line that was cut short damages no other
            text = b"\n" + text
        _write(fd, text, end)


def read(tell: Callable[[str], None] = print) -> list[Event]:
    """Read the events in the order of the file; damaged lines are put aside, and the learner is told."""
    if not journal_file().exists():
        return []
    with _locked() as fd:
        content = os.pread(fd, os.fstat(fd).st_size, 0)
        good, num_damaged = _parse_lines(content)
        if num_damaged:
            aside = _put_aside(content)
            _leave(fd, b"".join(line + b"\n" for line, _ in good))
            tell(f"{num_damaged} damaged lines of your journal are left out; the file as it was is kept as {aside}.")
    return [event for _, event in good]


def look() -> list[Event]:
    """Read the events and touch nothing: no lock, no damaged line put aside. None where the file cannot be read."""
    try:
        return parse(journal_file().read_bytes())[0]
    except OSError:
        return []


def parse(content: bytes) -> tuple[list[Event], int]:
    """Return the events of a journal's bytes, and how many lines are none."""
    good, num_damaged = _parse_lines(content)
    return [event for _, event in good], num_damaged


def to_lines(events: Iterable[Event]) -> bytes:
    """Return the bytes of a journal of these events."""
    return b"".join(json.dumps(event, ensure_ascii=False, allow_nan=False).encode() + b"\n" for event in events)


def _parse_lines(content: bytes) -> tuple[list[tuple[bytes, Event]], int]:
    lines = [line for line in content.split(b"\n") if line.strip()]
    good = [(line, event) for line in lines if (event := _parse_line(line)) is not None]
    return good, len(lines) - len(good)


def _parse_line(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
        to_lines([event])  # what JSON cannot say again (NaN, half a character) is no event either
    except (ValueError, RecursionError):
        return None
    well_formed = isinstance(event, dict) and isinstance(event.get("kind"), str) and isinstance(event.get("at"), str)
    return event if well_formed else None


@contextmanager
def _locked(flags: int = 0) -> Iterator[int]:
    """Open the journal for this process alone; it is made when it is not there."""
    file = journal_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(file, os.O_RDWR | os.O_CREAT | flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def _write(fd: int, content: bytes, end: int) -> None:
    if os.write(fd, content) != len(content):
        os.ftruncate(fd, end)
        raise _full()
    os.fsync(fd)


def _leave(fd: int, good: bytes) -> None:
    """Leave these lines only, of more than these. After a crash in between, what is not yet at the start still stands below."""
    if os.pwrite(fd, good, 0) != len(good):
        raise _full()
    os.fsync(fd)
    os.ftruncate(fd, len(good))


def _full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(journal_file()))


def _put_aside(content: bytes) -> Path:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S.%f")
    aside = journal_file().with_name(f"journal-{now}.damaged")
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    return aside
