"""How much slower training is while a save is being written. Rank side; see `contenders.py` for what a contender is.

Training is steps of the same many small matrix products, on one thread a rank: between them the interpreter is needed, as it is
by real training, and by a thread that writes.
"""

import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_saver import async_save

from ckptlab.bench.own import STEP, contents_of
from ckptlab.bench.stage import Stage
from ckptlab.checkpoint import save
from ckptlab.checkpoint.collectives import Group, Outcome
from ckptlab.resume.background import BackgroundSaver

WIDTH, PRODUCTS = 256, 50  # a step is some 20 ms on a CPU
STEPS_ALONE = 20


def alone(stage: Stage) -> Iterator[float | None]:
    """No save."""
    yield None
    yield _seconds_a_step(stage, lambda steps: steps == STEPS_ALONE)


def beside_own(stage: Stage) -> Iterator[float | None]:
    """Ckptlab's save in the background, from when the caller goes on until it is committed."""
    run, contents, saver, is_over = stage.fresh(), contents_of(stage.state()), BackgroundSaver(), Event()
    yield None
    with Group.lent(None) as group:
        copy = saver.copy(contents)
        group.agree(Outcome())

        def write(ranks: Group) -> Any:
            try:
                return save(run, STEP, copy, group=ranks)
            finally:
                is_over.set()

        saver.start(STEP, write)
        seconds = _seconds_a_step(stage, lambda steps: is_over.is_set())
        saver.finish(group)
    saver.close()
    yield seconds


def beside_dcp(stage: Stage) -> Iterator[float | None]:
    """The same of `async_save`."""
    folder, state = stage.fresh(), stage.state()
    yield None
    future: Any = async_save(dict(state), checkpoint_id=folder)
    seconds = _seconds_a_step(stage, lambda steps: future.done())
    future.result()
    yield seconds


def _seconds_a_step(stage: Stage, is_over: Callable[[int], bool]) -> float:
    """Train until it is over, and at least a step; return what a step took on average."""
    weight, steps = torch.eye(WIDTH, device=stage.device), 0
    since = time.perf_counter()
    while not steps or not is_over(steps):
        for _ in range(PRODUCTS):
            weight = weight @ weight
        stage.wait_for_device()
        steps += 1
    return (time.perf_counter() - since) / steps
