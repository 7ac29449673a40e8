"""Ends a process that got SIGTERM and hangs.

In a collective with a dead rank the main thread comes to no Python handler. What the kernel calls is a handler in C, which
writes the signal's number to a pipe at once (`signal.set_wakeup_fd`), and a thread reads it there.
"""

import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import Callable

CHECK_SECONDS = 0.1
logger = logging.getLogger("ckptlab")


class Watchdog:
    """From when it is made until `close`. SIGTERM must have a handler set by Python."""

    def __init__(self, is_late: Callable[[float], bool]) -> None:
        """Begin to watch (main thread).

        Args:
            is_late: asked again and again from SIGTERM on, with its time on `time.monotonic`: whether to end the process.
        """
        self._is_late = is_late
        self._over = threading.Event()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="ckptlab watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let SIGTERM come to the main thread alone."""
        signal.set_wakeup_fd(self._before)
        self._over.set()
        os.write(self._writing, b"\0")  # not closed: a forked process may hold it open too
        self._thread.join()
        os.close(self._reading)
        os.close(self._writing)

    def _watch(self) -> None:
        while not self._over.is_set():
            if os.read(self._reading, 1)[0] != signal.SIGTERM:
                continue
            came = time.monotonic()
            while not self._over.wait(CHECK_SECONDS):
                if self._is_late(came):
                    logger.warning("SIGTERM came and not all ranks agreed to save: one is lost; this process ends")
                    _end_by(signal.SIGTERM)


def _end_by(number: int) -> None:
    """End this process as though it had no handler; `signal.signal` is for the main thread."""
    ctypes.CDLL(None).signal(number, None)
    os.kill(os.getpid(), number)
