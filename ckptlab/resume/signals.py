"""Signals that this process takes note of instead of dying of them.

Python runs a handler when the main thread comes to it, between two of its own instructions. Slurm signals every process of a
job: loader workers are kept from it, because a rank whose worker dies raises; any other process that was forked meanwhile
dies of the signal as ever.
"""

import atexit
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing import util
from types import FrameType
from typing import Any

from ckptlab.errors import UsageError

_LOADER = "torch.utils.data._utils.worker"


def check_thread() -> None:
    """Raise `UsageError` where Python handles no signals."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("signals are handled in the main thread only: open the Checkpointer there, or give no grace_seconds")


class NotedSignals:
    """From when it is made until `put_back`, signals of these numbers are noted."""

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        """Take the signals.

        Raises:
            UsageError: this is not the main thread, which alone may.
        """
        check_thread()
        self.last = 0  # the number that came last
        self._process = os.getpid()
        self._before: dict[signal.Signals, Any] = {number: signal.signal(number, self._note) for number in numbers}
        util.register_after_fork(self, NotedSignals._in_child)
        atexit.register(_end_workers)

    def put_back(self, *, and_raise: bool) -> None:
        """Let the signals do again what they did before, the one that came last at once if `and_raise`."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set by Python
        self._before = {}
        if and_raise and self.last:
            os.kill(os.getpid(), self.last)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() == self._process:
            self.last = number
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _in_child(self) -> None:
        """Be a process of multiprocessing that was forked."""
        signal.set_wakeup_fd(-1)  # it is the rank's
        target = vars(multiprocessing.current_process()).get("_target")
        if self._before and getattr(target, "__module__", None) == _LOADER:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._before)


def _end_workers() -> None:
    """End the loader workers of a process that ends: it would wait for one that is busy, whom SIGTERM does not reach."""
    children = [child for child in multiprocessing.active_children() if child.daemon]
    if children:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler raises when a worker dies
    for child in children:
        child.kill()
