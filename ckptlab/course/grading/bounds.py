"""A rank that judges an answer of somebody else: in a folder and a session of its own, with bounds. On ranks only.

What they stop, and what not, `ckptlab grade --help` says.
"""

import os
import resource
import sys
import tempfile
from pathlib import Path

from ckptlab.course.exercise.judge import judge

# Of address space, beyond what a rank with torch has anyway: that bounds shared memory too. Exercise 2.3 makes 120 threads for
# gloo in each of 4 ranks, and their stacks and heaps, which are hardly used, are 1.8 GB of it.
MEMORY_BYTES = 3 << 30
NUM_TASKS = 1024  # processes and threads of the user; root has no such limit
FILE_BYTES = 64 << 20  # of one file; above what a rank may print, which World bounds


def judge_in_bounds(path: str, source: str) -> dict[str, object]:
    """Judge as `judge` does, in the folder that TMPDIR names."""
    os.setsid()  # a signal to the group reaches only what this rank started
    os.chdir(os.environ["TMPDIR"])
    tempfile.tempdir = None  # what was looked up before TMPDIR was set
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    if sys.platform == "linux":
        num_pages = int(Path("/proc/self/statm").read_text().split()[0])
        _limit(resource.RLIMIT_AS, num_pages * resource.getpagesize() + MEMORY_BYTES)
        _limit(resource.RLIMIT_NPROC, _num_tasks_of_user() + NUM_TASKS)
    return judge(path, source)


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _num_tasks_of_user() -> int:
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == os.getuid():
                count += len(os.listdir(process / "task"))
        except OSError:  # it has just ended, or is hidden
            continue
    return count
