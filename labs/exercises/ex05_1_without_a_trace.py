"""Capture and restore the random state

`work()` draws random numbers from Python's, NumPy's and torch's global generators. Call it and return what it gives, but leave
no trace: afterwards all three generators are where they were before, also when `work` raises. (An evaluation in the middle of
training is such work.)
"""

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch

from ckptlab.course.exercise import Case

MINUTES = 6
WORLD_SIZES = (1,)
HINTS = (
    "Two steps: before `work()` ask each generator for its state, after it give each one its own back.",
    "`random.getstate`, `np.random.get_state` and `torch.get_rng_state`; their partners begin with `set`.",
    "`try: return work()` and `finally:` with the three `set` calls; what is in `finally` is done in any case.",
)


def without_a_trace(work: Callable[[], object]) -> object:
    """Return what `work()` gives, and leave the three generators where they were."""
    raise NotImplementedError


def solution(work: Callable[[], object]) -> object:
    python, numpy, pytorch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        return work()
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(pytorch)


def wrong_torch_alone(work: Callable[[], object]) -> object:
    """torch's generator is back, but Python and NumPy have generators of their own, and these have moved."""
    pytorch = torch.get_rng_state()
    try:
        return work()
    finally:
        torch.set_rng_state(pytorch)


def wrong_seeded_again(work: Callable[[], object]) -> object:
    """A seed says where a generator begins. These were on their way: they have to go back to where they were."""
    try:
        return work()
    finally:
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(torch.initial_seed())


def wrong_when_all_goes_well(work: Callable[[], object]) -> object:
    """Right, as long as `work` ends well. When it raises, the lines behind it are not run: put them into a `finally`."""
    python, numpy, pytorch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    result = work()
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(pytorch)
    return result


def wrong_captured_too_late(work: Callable[[], object]) -> object:
    """The states are taken after `work` has drawn, so this puts the generators where they are already."""
    result = work()
    python, numpy, pytorch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(pytorch)
    return result


def check(answer: Callable[[Callable[[], object]], object], rank: int, world_size: int) -> Iterator[Case]:
    drawn = random.Random("5.1")
    for case in ("work that ends well", "work that draws much", "work that raises"):
        seed, before, during = (drawn.randrange(1, 1000) for _ in range(3))
        _begin(seed, before)
        expected = _draw()  # what comes next when nothing was in between
        _begin(seed, before)
        given = answer(_work(during, raises=case.endswith("raises")))
        found = _draw()
        if not case.endswith("raises"):
            yield Case(given, during, where=f"{case}, what it gives")
        for generator in expected:
            yield Case(found[generator], expected[generator], where=f"{case}, the next numbers of {generator}")


def _begin(seed: int, num_draws: int) -> None:
    """Bring the three generators to a place that only their states tell."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    for _ in range(num_draws):
        random.random()
        np.random.rand()
        torch.rand(())


def _draw() -> dict[str, list[float]]:
    return {
        "Python": [random.randrange(1000) for _ in range(3)],
        "NumPy": np.random.randint(1000, size=3).tolist(),
        "torch": torch.randint(1000, (3,)).tolist(),
    }


def _work(num_draws: int, *, raises: bool) -> Callable[[], object]:
    def work() -> object:
        for _ in range(num_draws):
            _draw()
        if raises:
            raise ValueError("a bad batch")
        return num_draws

    return work
