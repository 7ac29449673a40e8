"""One rank of a `World`: it meets the others, then carries out what the parent sends and answers, until it is killed."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import FrameType, ModuleType

import torch
import torch.distributed as dist

from ckptlab.ranks import output
from ckptlab.ranks.answer import Answer, describe_error
from ckptlab.ranks.join import LOOPBACK, take_device
from ckptlab.ranks.task import carry_out
from ckptlab.ranks.values import MOST_BYTES, num_bytes, portable


def main(rank: int, world_size: int, folder: Path, connection: Connection, timeout: float, device: str) -> None:
    """Be rank `rank`: the first answer tells that it has met the others, each later one what a task gave."""
    output.redirect(output.file_of(rank, folder))
    _die_first()
    attempts = _Attempts()
    connection.send(attempts.answer(partial(_meet, rank, world_size, folder, timeout, device)))
    namespace = _fresh_main(rank, world_size)
    me = os.getpid()
    while True:
        task = connection.recv_bytes()
        answer = attempts.answer(partial(_carry_out, task, namespace))
        if os.getpid() != me:  # a process that the task has forked: it has done its part, and is no rank
            os._exit(0)
        connection.send(answer)


class _Attempts:
    """Runs tasks; an interrupt (SIGINT) ends a running task once, and does nothing between tasks."""

    def __init__(self) -> None:
        self._interruptible = False
        signal.signal(signal.SIGINT, self._interrupt)

    def answer(self, work: Callable[[], object]) -> Answer:
        try:
            self._interruptible = True
            return _answer_with(portable(work()))
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: they end the task, not the rank
            return Answer(raised=describe_error(error))
        finally:
            self._interruptible = False
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # the task has closed it, or put something else in its place
                    stream.flush()

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._interruptible:
            self._interruptible = False
            raise KeyboardInterrupt


def _answer_with(value: object) -> Answer:
    if (size := num_bytes(value)) <= MOST_BYTES:
        return Answer(value=value)
    most = f"at most {MOST_BYTES:,} come back from a rank; give a part of it, or its shape"
    return Answer(raised=describe_error(ValueError(f"the value has {size:,} bytes, and {most}")))


def _die_first() -> None:
    """If memory runs out, let the system end a rank before the process that has the world (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _meet(rank: int, world_size: int, folder: Path, timeout: float, device: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK
    torch.set_num_threads(1)
    dist.init_process_group(
        take_device(device, rank, world_size),
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout),
    )


def _fresh_main(rank: int, world_size: int) -> dict[str, object]:
    """Make a `__main__` for the tasks to run in, so that classes defined there are found by name, as in a script."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    main.__dict__.update(rank=rank, world_size=world_size, torch=torch, dist=dist)
    return main.__dict__


def _carry_out(task: bytes, namespace: dict[str, object]) -> object:
    return carry_out(ForkingPickler.loads(task), namespace)
