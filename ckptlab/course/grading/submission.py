"""What a learner hands in: one file, a header line and the lines of the journal. Only its name says whose it is."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import ckptlab
from ckptlab.course import content, journal
from ckptlab.course.progress import own_key
from ckptlab.course.progress.keeping import MOST_BYTES, new_events, replace_file
from ckptlab.errors import UsageError

KIND = "submission"
FORMAT = 1


def submit(path: Path) -> list[journal.Event]:
    """Write the journal to `path`, to hand in; return its events. An earlier submission of the same learner is replaced.

    Raises:
        UsageError: the file is something else, or holds what the journal does not; or there is nothing to hand in.
    """
    events = [event for event in journal.read() if event["kind"] not in (KIND, own_key.KIND)]
    if path.suffix != ".jsonl" or path.name.startswith("."):
        raise UsageError(f"name the file like ada.jsonl: .jsonl, and not hidden, is what is graded; found {path.name}")
    if not events:
        raise UsageError("your journal is empty: there is nothing to hand in yet")
    if path.exists() or path.is_symlink():
        _refuse_to_lose(path, events)
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    replace_file(path, journal.to_lines([make_header(now, digests()), *events]))
    return events


def make_header(now: str, exercises: Mapping[str, str]) -> journal.Event:
    """Return the first line: what made the file, and from which exercises."""
    made_by = {"ckptlab": ckptlab.__version__, "python": platform.python_version()}
    return {"v": 1, "at": now, "kind": KIND, "format": FORMAT, **made_by, "exercises": dict(exercises)}


def digests() -> dict[str, str]:
    """Return the beginning of every exercise file's SHA-256, by id."""
    return {id_: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for id_, path in content.exercises().items()}


def _refuse_to_lose(path: Path, events: Sequence[journal.Event]) -> None:
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise UsageError(f"{path} is there and is no submission; choose another name")
    there, num_damaged = journal.parse(path.read_bytes())
    if num_damaged or not there or there[0]["kind"] != KIND:
        raise UsageError(f"{path} is there and is no submission; choose another name")
    if new_events(there[1:], list(events)):
        raise UsageError(f"{path} is a submission that holds what your journal does not; choose another name")
