"""Committed steps of a run on disk go into object stores behind the training. No torch; the coordinator alone has drains.

To each store one step is under way and at most one waits, the newest: one that it takes the place of is left out. What goes
wrong is a warning and an event; when the store is to blame, the step waits on and is tried again after the next save.

A drain has a thread only while it has something to do, and `close` waits for it. `stop`, and the end of a program that did not
close, break off what is under way: within a block, or the patience of one request. Whoever resumes the run next sends the rest.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ckptlab.errors import StepError, StoreError
from ckptlab.format.names import step_name
from ckptlab.steps.housekeeping import set_aside_in_store
from ckptlab.steps.retention import retire_in_store
from ckptlab.steps.steps import newest_step
from ckptlab.storage import store
from ckptlab.tiers.object_store import ObjectStore
from ckptlab.tiers.push import push

logger = logging.getLogger("ckptlab")
TELL_SECONDS = 10  # between two lines of the log while `close` waits
WriteEvent = Callable[[Mapping[str, object]], None]


class Drains:
    """One for each store. The calls come from one thread at a time, and `in_use` from any."""

    def __init__(self, run: Path, tiers: Iterable[ObjectStore], write_event: WriteEvent) -> None:
        """Start nothing yet. `write_event` is called from any thread, and does not raise."""
        self._drains = [Drain(run, tier, write_event) for tier in tiers]

    def start(self, later: Sequence[int]) -> None:
        """Go on with what an earlier process left unsent; `later` steps in the stores are none of this run any more."""
        for drain in self._drains:
            drain.start(later)

    def committed(self, step: int) -> None:
        """Send a step that is committed on disk now, if it is due, and what still waits."""
        for drain in self._drains:
            drain.committed(step)

    def in_use(self) -> set[int]:
        """Tell which steps are being sent or wait for it: they must stay on the disk."""
        return set().union(*(drain.in_use() for drain in self._drains))

    def stop(self) -> None:
        """Send nothing more until `start`, and break off what is under way: soon, for which `close` waits."""
        for drain in self._drains:
            drain.stop()

    def close(self) -> None:
        """Wait until all that is due is sent or has failed, however long that takes."""
        for drain in self._drains:
            drain.join()


class Drain:
    """The steps that are on their way into one store."""

    def __init__(self, run: Path, tier: ObjectStore, write_event: WriteEvent) -> None:
        self._run, self._tier, self._write_event = run, tier, write_event
        self._lock = threading.Lock()  # for the next three
        self._waiting: int | None = None
        self._under_way: int | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._unsent: int | None = None  # by an earlier process, perhaps
        self._later: Sequence[int] = ()
        self._num_bytes = 0  # of the step under way, verified and handed on

    def start(self, later: Sequence[int]) -> None:
        """Send the newest whole step on disk that is due; before anything is sent, set `later` steps in the store aside."""
        newest = newest_step(self._run, self._tier.every or 1)
        self._stopped.clear()
        self._later, self._unsent = later, None if newest is None else newest.number
        with self._lock:
            self._waiting = self._unsent
        self._wake()

    def committed(self, step: int) -> None:
        """Send a step, in the place of one that waits."""
        if self._tier.is_due(step):
            with self._lock:
                left_out, self._waiting = self._waiting, step
            if left_out is not None:
                self._tell(left_out, outcome="skipped")
        self._wake()

    def in_use(self) -> set[int]:
        """Tell which steps are under way or wait."""
        with self._lock:
            return {step for step in (self._waiting, self._under_way) if step is not None}

    def stop(self) -> None:
        """Break off what is under way, soon."""
        self._stopped.set()

    def join(self) -> None:
        """Wait until the thread has nothing to do, and log how far it is."""
        while (thread := self._thread) is not None:
            thread.join(TELL_SECONDS)
            if thread.is_alive():
                logger.info("step %s: %.3f GB are in %s so far", self._under_way, self._num_bytes / 1e9, self._tier.run)

    def _wake(self) -> None:
        with self._lock:
            if self._thread is not None or self._waiting is None:
                return
            self._thread = threading.Thread(target=self._work, name=f"ckptlab drain to {self._tier.run}")
            try:
                self._thread.start()
            except RuntimeError as error:  # the system gives no thread, or the program is ending
                self._thread = None
                logger.warning("step %d is not in %s yet: %s", self._waiting, self._tier.run, error)

    def _work(self) -> None:
        failed = None
        try:
            while (step := self._next(failed)) is not None:
                failed = None if self._send(step) else step
        finally:  # whatever ends the thread: `join` waits for it, and a step in use stays on the disk
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = self._under_way = None

    def _next(self, failed: int | None) -> int | None:
        """Take what waits; None ends the thread. A step that failed waits for the next save, unless a newer one is there."""
        with self._lock:
            self._under_way = None
            if failed is not None and self._waiting is None:
                self._waiting = failed
            elif not self._stopped.is_set():
                self._under_way, self._waiting = self._waiting, None
            if self._under_way is None:
                self._thread = None  # in the same breath: who comes now starts another one
            return self._under_way

    def _send(self, step: int) -> bool:
        """Push a step and tell what came of it; return False when it is to be tried again."""
        since, self._num_bytes = time.monotonic(), 0
        try:
            sent = self._push(step)
        except Exception as error:  # of whatever kind: training goes on
            again = isinstance(error, StoreError)
            what = "; it is tried again after the next save, or when the run is resumed" if again else ""
            logger.warning("step %d is not in %s: %s%s", step, self._tier.run, error, what)
            self._tell(step, outcome="failed", error=str(error), seconds=_since(since))
            return not again
        if sent is not None:
            self._tell(step, outcome="committed", bytes=sent, seconds=_since(since))
            self._retire(step)
        return True

    def _push(self, step: int) -> int | None:
        """Return the bytes that were sent; None where an earlier process has sent a newer step already."""
        while self._later:
            set_aside_in_store(self._tier.run / step_name(self._later[-1]))
            self._later = self._later[:-1]
        newest = newest_step(self._tier.run) if store.exists_directory(self._tier.run) else None
        if newest is not None and newest.number > step:
            if step == self._unsent:
                return None
            raise StepError(f"step {newest.number} is there, which is newer; resume from it, or push to another address")
        return sum(push(self._run / step_name(step), self._tier.run, self._advance).sent.values())

    def _advance(self, num_bytes: int) -> None:
        """Count what is sent, and break off when that is wanted or the program ends; from any thread."""
        self._num_bytes += num_bytes
        if self._stopped.is_set() or not threading.main_thread().is_alive():
            raise StoreError("the push was broken off")

    def _retire(self, step: int) -> None:
        rule = f"keep_last={self._tier.keep_last}"
        try:
            for number in retire_in_store(self._tier.run, self._tier.keep_last, step):
                self._write_event({"event": "delete", "step": number, "outcome": "deleted", "rule": rule, **self._where})
        except Exception as error:  # the step is there; the next one tries again
            logger.warning("%s: old steps were not deleted: %s", self._tier.run, error)

    def _tell(self, step: int, **members: object) -> None:
        self._write_event({"event": "push", "step": step, **self._where, **members})

    @property
    def _where(self) -> dict[str, object]:
        return {"tier": str(self._tier.run)}


def _since(begin: float) -> float:
    return round(time.monotonic() - begin, 6)
