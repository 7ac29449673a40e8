"""Saves behind the training: from a copy, one at a time, in a thread on every rank with a group of its own.

`copy`, `start`, then `finish` at the next call, in the order in which they act. The thread is not a daemon: a process that ends
without `close` first writes to its end what it has begun. Whether a save is over or has failed, the ranks agree by the group of
their main threads, so that all of them go the same way.
"""

import atexit
import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import NoReturn

from ckptlab.checkpoint.collectives import Group, Outcome, RanksDisagree, attempt
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.host_buffer import HostBuffer
from ckptlab.errors import SaveError

logger = logging.getLogger("ckptlab")


class BackgroundSaver:
    """Writes one step at a time while the caller goes on. Every rank makes one, and calls its methods together."""

    def __init__(self) -> None:
        """Make a group for the threads: two threads on one group would crash all ranks.

        Raises:
            RanksDisagree: not all ranks came.
        """
        self._group = Group.of_world()
        self._buffer = HostBuffer()
        self._in_flight: _InFlight | None = None
        atexit.register(self._tell_unasked)  # comes after all threads have ended

    @property
    def step(self) -> int | None:
        """The step of which the outcome has not been asked for yet: the same on all ranks."""
        return None if self._in_flight is None else self._in_flight.step

    def copy(self, contents: Contents) -> Contents:
        """Return a copy that holds until the next one is taken; the save before must be finished. Nothing is communicated."""
        assert self._in_flight is None, "its copy would be overwritten"
        return self._buffer.copy(contents, self._group.rank, self._group.world_size)

    def start(self, step: int, save: Callable[[Group], Path]) -> None:
        """Begin to save, and return at once; `save` gets the threads' group."""
        self._in_flight = _InFlight(step, lambda: save(self._group))

    def is_busy(self, group: Group) -> bool:
        """Whether any rank is still writing; False also when a rank is lost, which `finish` tells.

        Args:
            group: of the main threads.
        """
        if self._in_flight is None:
            return False
        try:
            return bool(group.agree(Outcome(self._in_flight.is_running), any))
        except RanksDisagree:
            return False

    def finish(self, group: Group) -> Path | None:
        """Wait for the save in flight and return its step's directory; None if there is none.

        Args:
            group: of the main threads.

        Raises:
            SaveError: on every rank that is left, when the save failed on any.
        """
        if self._in_flight is None:
            return None
        step, outcome = self._in_flight.step, self._in_flight.outcome()
        self._in_flight = None
        try:
            group.agree(Outcome(error=outcome.error))
        except RanksDisagree as error:
            _refuse(step, outcome, str(error), error.lost)
        path: Path = outcome.value
        return path

    def close(self) -> Path | None:
        """Wait for the save in flight, give the group back and return what `finish` would. The main threads do not communicate.

        Raises:
            SaveError: the save failed; what a save came to is agreed, so that it is so on every rank that is left.
        """
        ended = self._in_flight
        outcome = Outcome() if ended is None else ended.outcome()
        self._in_flight = None
        self._group.close()
        atexit.unregister(self._tell_unasked)
        if ended is not None and outcome.error is not None:
            _refuse(ended.step, outcome, f"{type(outcome.error).__name__}: {outcome.error}", ())
        path: Path | None = outcome.value
        return path

    def _tell_unasked(self) -> None:
        """Say at the end of a process that did not ask what its last save came to, if it failed."""
        if self._in_flight is not None and (error := self._in_flight.outcome().error) is not None:
            logger.error("%s", error)


class _InFlight:
    """A save that was begun, in its thread."""

    def __init__(self, step: int, save: Callable[[], Path]) -> None:
        self.step = step
        self._outcome = Outcome(error=RuntimeError("the thread ended before its work was done"))
        self._thread = Thread(target=self._run, args=(save,), name=f"ckptlab save of step {step}")
        try:
            self._thread.start()
        except RuntimeError:  # the system gives no thread; the other ranks' threads wait for this rank all the same
            self._run(save)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def outcome(self) -> Outcome:
        """Return the directory or the error, when the thread has ended."""
        if self.is_running:
            self._thread.join()
        return self._outcome

    def _run(self, save: Callable[[], Path]) -> None:
        time.sleep(0)  # the caller goes on first: this thread would keep the interpreter's lock for 5 ms
        self._outcome = attempt(save)


def _refuse(step: int, outcome: Outcome, why: str, lost: tuple[int, ...]) -> NoReturn:
    """Raise this rank's own error where it has one: that says whether the step is committed."""
    if isinstance(outcome.error, SaveError):
        raise outcome.error
    if outcome.error is None:
        raise SaveError(f"step {step} is saved; then {why}", committed=True, lost=lost)
    raise SaveError(f"step {step} may or may not be saved: {why}", committed=None, lost=lost) from outcome.error
