"""When the next save is due: at multiples of a number of steps, or as often as the cost of saves and of failures asks for."""

import time
from math import isfinite
from typing import Literal

from ckptlab.errors import UsageError
from ckptlab.resume.interval import best_interval, expected_overhead

FIRST_STEPS = 10  # until the first two saves of a run, which are measured
Decision = dict[str, float | int]


class Schedule:
    """Asked on every rank after every step. What needs a clock, rank 0 decides at a save, and all ranks follow.

    A step's time, a save's stall and the time of writing are those of the last save and the steps before it.
    """

    def __init__(self, every: int | Literal["auto"] | None, mtbf_hours: float | None) -> None:
        """Take what the `Checkpointer` was told.

        Raises:
            UsageError: `every` is neither a number of steps nor "auto", or "auto" has no time between failures.
        """
        if every != "auto" and not (every is None or (isinstance(every, int) and every >= 1)):
            raise UsageError(f"every={every!r}: a number of steps, at least 1, 'auto' or None")
        if (every == "auto") != (mtbf_hours is not None) or (mtbf_hours is not None and not mtbf_hours > 0):
            raise UsageError(f"every={every!r}, mtbf_hours={mtbf_hours}: 'auto' needs the mean hours between failures, above 0")
        self._every, self._mtbf = every, 3600 * (mtbf_hours or 0.0)
        self._stall: float | None = None
        self._write = 0.0
        self.start(0)

    def start(self, step: int) -> None:
        """Say that training goes on from `step`."""
        self._step, self._since, self._due = step, time.monotonic(), step + FIRST_STEPS

    def is_due(self, step: int) -> bool:
        """Whether to save after `step`."""
        if isinstance(self._every, int):
            return step % self._every == 0
        return self._every == "auto" and step >= self._due

    def decide(self, step: int, now: float) -> Decision | None:
        """Return when to save next after a save of `step` that begins `now`; None where steps are counted (rank 0)."""
        if self._every != "auto":
            return None
        step_seconds = max(now - self._since, 1e-9) / max(step - self._step, 1)
        if self._stall is None:
            return {"steps": FIRST_STEPS}
        seconds = best_interval(self._stall, self._mtbf, self._write)
        overhead = expected_overhead(seconds, self._stall, self._mtbf, self._write)
        told = {"overhead": overhead} if isfinite(overhead) else {}  # JSON has no infinity
        return {"steps": max(1, round(seconds / step_seconds)), "seconds": seconds, **told}

    def follow(self, step: int, decision: Decision | None) -> None:
        """Take what rank 0 has decided at a save of `step`."""
        if decision is not None:
            self._due = step + int(decision["steps"])

    def saved(self, step: int, begun: float, write_seconds: float) -> None:
        """Take what the save of `step` cost, which is over for training: it has stood still since `begun`.

        Args:
            step: the step that was saved.
            begun: on `time.monotonic`.
            write_seconds: how long the save before took to be written in the background; 0 in the foreground.
        """
        self._step, self._since, self._write = step, time.monotonic(), write_seconds
        self._stall = self._since - begun
