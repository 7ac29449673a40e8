"""Start processes from one forkserver that has torch loaded, so that this process never loads it.

One forkserver serves all worlds and jobs of a process. It starts with the first of them and ends with the process. It is
multiprocessing's own: in a program that started it earlier for something else, each rank loads torch for itself.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerProcess

from ckptlab.ranks import guard

_starting = threading.Lock()


def start(function: str, *args: object) -> ForkServerProcess:
    """Start a process that calls `function` ("module:name") with `args` and this process's environment, and ends with it."""
    context = multiprocessing.get_context("forkserver")
    with _starting, _without_main():
        context.set_forkserver_preload(["ckptlab.ranks.preload"])
        resource_tracker.ensure_running()  # first: starting it unblocks SIGINT
        with _deaf_to_interrupts():
            forkserver.ensure_running()
        key = vars(forkserver._forkserver).get("_forkserver_authkey")  # from Python 3.14 on
        process = context.Process(target=guard.enter, args=(function, dict(os.environ), key, *args))
        try:
            process.start()
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # they hold the pipe by which a late process sees that it is not wanted
            raise
    return process


def reuse() -> None:
    """Let this process, itself forked by a forkserver, ask that one for more processes instead of starting one of its own."""
    vars(forkserver._forkserver)["ensure_running"] = lambda: None


def how_it_ended(exit_code: int) -> str:
    """Say how a process ended: "was killed by SIGKILL", "exited with code 3"."""
    if exit_code < 0:
        return f"was killed by {_signal_name(-exit_code)}"
    return f"exited with code {exit_code}"


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let what is started here never see SIGINT: a forkserver that Ctrl+C ends while it loads would fail the next start too.

    It hands this on to what it forks; `guard.enter` takes it back.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep multiprocessing from running this process's main script again in the process it starts."""
    main = sys.modules["__main__"]
    spec, main.__spec__ = main.__spec__, ModuleSpec("__main__", None)
    try:
        yield
    finally:
        main.__spec__ = spec


def _signal_name(number: int) -> str:
    known = {known.value: known.name for known in signal.Signals}
    return known.get(number, f"signal {number}")  # real-time signals have no names
