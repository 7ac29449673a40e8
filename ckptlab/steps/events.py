"""`RUN/events.jsonl`: a line a save, load, delete, wait, interval, push, shrink, conversion, preemption; for people, by rank 0.

A load never reads it. `stall` is the seconds that training waited: in a save, and in a wait for a save in the background; their
sum is all of it. Nothing depends on events: one that cannot be written, and an `on_event` that raises, are only logged.
"""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ckptlab.format.names import EVENTS
from ckptlab.storage import Place, posix, store

MAX_EVENTS_BYTES = 1 << 30
WriteEvent = Callable[[Mapping[str, object]], None]
OnEvent = Callable[[dict[str, Any]], object]
logger = logging.getLogger("ckptlab")


def append_event(run: Path, event: Mapping[str, object], on_event: OnEvent | None = None) -> None:
    """Append an event, and tell `on_event`; the version and the time of now are added (coordinator).

    `on_event` is told also what a full disk does not take. Where there is no run yet, nothing is written.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    complete = {"v": 1, "at": now, **event}
    _or_warn(f"{run}: no event was written", lambda: _append(run, complete))
    if on_event is not None:
        _or_warn(f"{run}: on_event raised at {complete}", lambda: on_event(complete))


def with_stall(write: WriteEvent, stall: Callable[[], float]) -> WriteEvent:
    """Return `write` for events whose `stall` another one knows better than who makes them."""
    return lambda event: write({**event, "stall": round(stall(), 6)} if "stall" in event else event)


def _append(run: Path, event: Mapping[str, object]) -> None:
    line = json.dumps(event, ensure_ascii=False, allow_nan=False)
    with suppress(FileNotFoundError):
        posix.append_line(run / EVENTS, f"{line}\n".encode())


def _or_warn(what: str, work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:  # every kind: a function of the caller's may raise any
        logger.warning("%s: %s: %s", what, type(error).__name__, error)


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
