"""`RUN/events.jsonl`: a line a save, load, delete, wait or interval, by the coordinator for people; load never reads it.

`stall` is the seconds that training waited: in a save, and in a wait for a save in the background; their sum is all of it.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ckptlab.format.names import EVENTS
from ckptlab.storage import Place, posix, store

MAX_EVENTS_BYTES = 1 << 30


def append_event(run: Path, event: Mapping[str, object]) -> None:
    """Append an event; the version and the time of now are added."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = json.dumps({"v": 1, "at": now, **event}, ensure_ascii=False, allow_nan=False)
    posix.append_line(run / EVENTS, f"{line}\n".encode())


def read_events(run: Place) -> list[dict[str, object]]:
    """Read the events in order; a line that a crash cut short is left out. None when there is no file."""
    if store.size_of(run / EVENTS) is None:
        return []
    lines = store.read_file(run / EVENTS, MAX_EVENTS_BYTES).splitlines()
    return [event for event in map(_parse, lines) if event is not None]


def _parse(line: bytes) -> dict[str, object] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None
