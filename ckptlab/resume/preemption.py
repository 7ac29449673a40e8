"""Preemption: a signal to any rank becomes a decision of all, at one step. What then follows is in `stop`.

At each call of `agreed` an all-reduce of what this rank was told begins, and that of the call before is read: nobody waits, and
all ranks learn of a signal at the same call, one after it was noted.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from ckptlab.checkpoint.collectives import Group, RanksDisagree, attempt
from ckptlab.errors import SaveError, UsageError
from ckptlab.resume.signals import NotedSignals, check_thread
from ckptlab.resume.watchdog import Watchdog

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
AGENT = "TORCHELASTIC_RUN_ID"  # in the environment under torch's elastic agent, which ends ranks by SIGTERM when it lost one
AGREE_SECONDS = 2.0  # beyond two calls
PATIENCE = timedelta(hours=1)  # with ranks that come late to a call; one that died is nearly always seen at once
EVALUATING = -1  # in the place of a step
logger = logging.getLogger("ckptlab")


class Signal(NamedTuple):
    """What came, and to which rank; of several ranks or signals, one."""

    name: str
    rank: int


class Preemption:
    """Every rank has one and calls its methods together; without `grace_seconds` they do nothing."""

    def __init__(self, grace_seconds: float | None) -> None:
        """Take what the `Checkpointer` was told; raise `UsageError` if that is no time."""
        if grace_seconds is not None and not grace_seconds > 0:
            raise UsageError(f"grace_seconds={grace_seconds}: seconds between a signal and the end, above 0, or None")
        self.grace_seconds = grace_seconds
        self._signals: NotedSignals | None = None
        self._watchdog: Watchdog | None = None
        self._group: Group | None = None
        self._begun: Callable[[], list[int]] | None = None
        self._agreed: Signal | None = None
        self._called: float | None = None  # when `agreed` was last called, on `time.monotonic`
        self._longest = 0.0  # seconds between two calls
        self._at_work, self._worked = 0, 0.0  # see `at_work`; until when, on `time.monotonic`
        self._warned = False

    def check(self) -> None:
        """Raise `UsageError` where `open` could not handle signals: this is not the main thread. Nothing is communicated."""
        if self.grace_seconds is not None:
            check_thread()

    def open(self) -> None:
        """Handle the signals, and make a group for the decision.

        Raises:
            RanksDisagree: not all ranks came.
        """
        if self.grace_seconds is not None:
            self._agreed = None
            self._signals = NotedSignals(SIGNALS)
            self._watchdog = Watchdog(self._is_late) if AGENT in os.environ else None
            self._group = Group.of_world(timeout=PATIENCE)

    def close(self) -> None:
        """Put back what was there before; of a run that stops, the signals are noted to the end, so that none changes how."""
        if self._begun is not None:
            attempt(self._begun)
        if self._group is not None:
            self._group.close()
        if self._watchdog is not None:
            self._watchdog.close()
        signals, self._signals = self._signals, None
        self._begun = self._group = self._watchdog = self._called = None
        if signals is not None and self._agreed is None:
            signals.put_back(and_raise=True)  # one that nobody was asked about any more

    def agreed(self, step: int = EVALUATING) -> Signal | None:
        """Return the signal of which all ranks have learned by this call, if one came.

        Raises:
            SaveError: a rank is lost.
            UsageError: ranks called this unequally often.
        """
        if self._group is None or self._signals is None or self._agreed is not None:
            return self._agreed
        now = time.monotonic()
        self._longest = max(self._longest, now - (now if self._called is None else self._called))
        self._called = now
        begun, self._begun = self._begun, None
        if begun is not None:
            self._agreed = _read(begun, self._group.world_size)
        if self._agreed is None:
            told = self._signals.last * self._group.world_size + self._group.rank if self._signals.last else 0
            self._begun = self._group.begin_largest([told, step, -step])
        return self._agreed

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Say that the checkpointer saves meanwhile, which may take long: it ends by itself when a rank is lost."""
        self._at_work += 1
        try:
            yield
        finally:
            self._worked, self._at_work = time.monotonic(), self._at_work - 1

    def measured(self, run: Path, stall: float, write: float) -> None:
        """Warn, once and on the coordinator, when a save after a signal would take too long, by what a save has cost.

        Args:
            run: the run's directory.
            stall: seconds that training stood still.
            write: seconds that writing took where training goes on meanwhile; what is in flight is waited for first.
        """
        told = too_slow(self.grace_seconds, self._longest, stall, write)
        if told is not None and not self._warned and self._group is not None and self._group.is_coordinator:
            logger.warning("%s: %s", run, told)
            self._warned = True

    def _is_late(self, came: float) -> bool:
        """Whether SIGTERM, which `came` then, must be the end of a job that lost a rank (the watchdog's thread)."""
        if self._at_work or self._agreed is not None:
            return False
        return time.monotonic() > max(came, self._worked) + AGREE_SECONDS + 2 * self._longest


def _read(begun: Callable[[], list[int]], world_size: int) -> Signal | None:
    try:
        told, last, first = begun()
    except RanksDisagree as error:
        raise SaveError(f"the ranks cannot agree whether a signal came: {error}; start them again and resume") from error
    if last != -first:
        here, there = ("in evaluation" if step == EVALUATING else f"at the end of step {step}" for step in (-first, last))
        raise UsageError(
            f"one rank called the Checkpointer {here}, and another one {there}, as its next call; every rank calls poll() "
            f"equally often, and save_if_due() at the end of every step"
        )
    number, rank = divmod(told, world_size)
    return Signal(signal.Signals(number).name, rank) if number else None


def too_slow(grace: float | None, longest: float, stall: float, write: float) -> str | None:
    """Say, in a sentence, that a save after a signal would take longer than the grace period; None if it would not.

    All are seconds: `longest` between two calls of `save_if_due` or `poll`; `stall`, `write` as `Preemption.measured` has them.
    """
    agree, save = 2 * longest, stall + 2 * write
    if grace is None or agree + save <= grace:
        return None
    return (
        f"after a signal it may take {agree + save:.1f} s until the run is saved, and grace_seconds is {grace:g}: "
        f"{agree:.1f} s until all ranks agree, twice the longest time between two calls of save_if_due() or poll(), "
        f"and {save:.1f} s for the save; call poll() in evaluation, save to a faster disk, or ask for a longer grace period"
    )
