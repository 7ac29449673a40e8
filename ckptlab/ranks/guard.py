"""The first code of every process that the forkserver forks: it cannot outlive the process that wanted it.

1. A rank gives up its end of the pipe by which the forkserver sees that its owner is gone, so that the owner alone holds it.
2. The kernel kills the rank when the forkserver ends, even a rank that is stopped (Linux).
3. A thread ends the rank when its parent ends (on any system; the parent of a job's ranks is the agent).
4. Processes that the rank forks, such as loader workers, end with the thread that forked them (Linux; elsewhere torch's own
   check takes up to 5 s).
"""

import ctypes
import multiprocessing
import os
import pkgutil
import signal
import sys
import threading
from collections.abc import Mapping
from multiprocessing import connection, forkserver

_PR_SET_PDEATHSIG = 1


def enter(function: str, environment: Mapping[str, str], key: bytes | None, *args: object) -> None:
    """Guard this process, take over its parent's environment and key to the forkserver, and call `function` ("module:name")."""
    end_with_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # the forkserver does without
    os.environ.update(environment)
    vars(forkserver._forkserver)["_forkserver_authkey"] = key
    pkgutil.resolve_name(function)(*args)


def end_with_parent() -> None:
    """See to 1 to 4. A process that the forkserver has forked calls it, first and once."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, vars(forkserver._forkserver)["_forkserver_alive_fd"], inheritable=False)  # 1
    os.close(nowhere)
    _end_with_forker()  # 2
    _wait_for_parent(0)  # it may be gone, or have been interrupted while it waited for this process
    threading.Thread(target=_wait_for_parent, name="guard", daemon=True).start()  # 3
    os.register_at_fork(after_in_child=_end_with_forker)  # 4
    if (
        sys.platform == "linux"
    ):  # as in a process of torchrun; a loader worker of a forkserver of its own would outlive the rank
        multiprocessing.set_start_method("fork", force=True)


def _end_with_forker() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_parent(seconds: float | None = None) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "multiprocessing has started this process"
    if connection.wait([parent.sentinel], seconds):
        os._exit(1)
