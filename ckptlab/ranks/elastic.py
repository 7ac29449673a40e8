"""`run_job`: ranks that are all started again when one of them fails, by torch's own elastic agent. Parent side.

The agent is a process of its own (`agent.py`), forked like its ranks from the forkserver: torch, its log and its signal
handlers are there and not here. It reports each attempt that fails. For several machines use torchrun or Slurm.
"""

import inspect
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from ckptlab.errors import RankLost, RankRaised, WorldError
from ckptlab.ranks import forkserver


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the agent is to do, in `folder`."""

    function: str
    args: tuple[object, ...]
    num_ranks: int
    max_restarts: int
    grace_seconds: float | None
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt ended: which rank failed first, and how."""

    attempt: int
    rank: int
    how: str  # "was killed by SIGKILL", "exited with code 3", "raised ValueError: bad shard"
    own_lines: str | None  # of the traceback, where it raised
    restarts_left: int

    def __str__(self) -> str:
        then = "all ranks are started again" if self.restarts_left else "no restart is left"
        return f"attempt {self.attempt}: rank {self.rank} {self.how}; {then}"


def run_job(
    function: str | Callable[..., object],
    args: tuple[object, ...] = (),
    *,
    num_ranks: int,
    max_restarts: int = 0,
    on_failure: Callable[[Failure], object] = print,
    grace_seconds: float | None = None,
) -> None:
    """Call a function in `num_ranks` processes; when one fails, end all and start all again, up to `max_restarts` times.

    The function calls `init_from_environment()` and can tell the attempt by TORCHELASTIC_RESTART_COUNT. Ranks print directly,
    without a label. They end with this process, whatever ends it. When an exception leaves `run_job`, such as
    KeyboardInterrupt, they get SIGTERM, and SIGKILL 30 s later, or `grace_seconds`, if they still run.

    Args:
        function: "module:name", or a function that can be imported like that.
        args: plain values for it.
        num_ranks: the world size.
        max_restarts: how many attempts there may be after the first.
        on_failure: called here with what ended each attempt, the last one too.
        grace_seconds: between the two signals; an older torch leaves 30 s.

    Raises:
        RankLost: in the last attempt a rank died.
        RankRaised: in the last attempt a rank raised.
        WorldError: the agent itself failed.
        ValueError: the function cannot be imported.
    """
    path = function if isinstance(function, str) else _path_of(function)
    folder = Path(tempfile.mkdtemp(prefix="ckptlab-job-"))
    job = Job(
        function=path,
        args=args,
        num_ranks=num_ranks,
        max_restarts=max_restarts,
        grace_seconds=grace_seconds,
        folder=folder,
    )
    reports, theirs = Pipe(duplex=False)
    agent = forkserver.start("ckptlab.ranks.agent:main", job, theirs)
    theirs.close()
    try:
        last = _pass_on(reports, on_failure)
    except BaseException:
        agent.terminate()
        raise
    finally:
        agent.join()
        reports.close()
        shutil.rmtree(folder, ignore_errors=True)
    if agent.exitcode != 0:
        raise _error(last, forkserver.how_it_ended(agent.exitcode or 0))


def _pass_on(reports: Connection, on_failure: Callable[[Failure], object]) -> Failure | None:
    """Pass on what the agent reports until it ends; return its last report."""
    last: Failure | None = None
    while True:
        try:
            last = reports.recv()
        except EOFError:
            return last
        on_failure(last)


def _path_of(function: Callable[..., object]) -> str:
    if not inspect.isfunction(function) or function.__module__ == "__main__" or "<" in function.__qualname__:
        raise ValueError(f"ranks cannot import {function!r}; a job's function stands at the top of a module")
    return f"{function.__module__}:{function.__qualname__}"


def _error(last: Failure | None, how_the_agent_ended: str) -> WorldError:
    if last is None or last.restarts_left:
        return WorldError(f"the elastic agent {how_the_agent_ended}; what it wrote stands above")
    if last.own_lines is not None:
        return RankRaised(f"{last}\n\n{last.own_lines}")
    return RankLost(str(last), ranks=(last.rank,))
