"""Which processes there are, by looking into /proc."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def state_and_parent(pid: int) -> tuple[str, int]:
    """Return a process's state letter and its parent; ("X", 0) when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return fields[0], int(fields[1])


def descendants(pid: int) -> set[int]:
    parents = {int(entry): state_and_parent(int(entry))[1] for entry in os.listdir("/proc") if entry.isdigit()}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()
