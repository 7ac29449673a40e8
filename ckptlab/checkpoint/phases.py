"""The phases of a save, by name and in order: the same tuple for code, events, progress and crash tests."""

import time
from collections.abc import Callable

PHASES = ("plan", "reserve", "write", "sync", "agree", "manifest", "commit", "retire")


class PhaseClock:
    """Counts the phases off: each one is timed, and `on_phase` is called after it.

    `on_phase` must not raise: the other ranks would wait for this one.
    """

    def __init__(self, on_phase: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self._on_phase = on_phase
        self._since = time.monotonic()

    @property
    def phase(self) -> str:
        """The phase that is going on."""
        return PHASES[len(self.seconds)]

    @property
    def stall(self) -> float:
        """Seconds that the caller has waited: for all phases so far."""
        return round(sum(self.seconds.values()), 6)

    def done(self, phase: str) -> None:
        """Say that `phase` is over; phases end in the order of `PHASES`."""
        assert phase == self.phase, f"{phase} is over before {self.phase} is"
        now = time.monotonic()
        self.seconds[phase], self._since = round(now - self._since, 6), now
        if self._on_phase is not None:
            self._on_phase(phase)
            self._since = time.monotonic()
