"""What belongs in a checkpoint

`run` has a `model` (with dropout), an `optimizer`, a `scheduler`, a `position` (samples trained on so far) and a `seed`. Return
a dict with all that it needs to go on exactly in a new process. There the run is made anew from its seed, and then it gets
back what your dict has: "model", "optimizer" and "scheduler" by `load_state_dict`, "position" as it is, "rng" by
`torch.set_rng_state`, "seed" by `torch.manual_seed`.
"""

import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ckptlab.course.exercise import Case

MINUTES = 3
WORLD_SIZES = (1,)
HINTS = (
    "Which parts of `run` are not at their beginning any more? A new process has only their beginnings.",
    "The optimizer and the scheduler have a `state_dict()` as the model has. `position` is a plain number.",
    "Dropout draws random numbers. `torch.get_rng_state()` tells where the generator is now, the seed only where it began.",
)

_STEPS = 8
_BATCH = 4
_KNOWN = ("model", "optimizer", "scheduler", "position", "seed", "rng")  # in this order


class Run:
    """A training run with all that runs have; made from its seed, it is at its beginning."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.seed, self.position = seed, 0
        self.data = torch.randn(_STEPS * _BATCH, 6, generator=torch.Generator().manual_seed(seed))
        self.model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(), nn.Linear(12, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.5)
        self.samples: list[int] = []  # the first of each step
        self.rates: list[float] = []
        self.losses: list[str] = []  # exact

    def train(self, steps: int) -> None:
        """Train, and keep what was seen on the way."""
        for _ in range(steps):
            batch = self.data[self.position : self.position + _BATCH]
            loss = self.model(batch).square().mean()
            self.samples.append(self.position)
            self.rates.append(self.optimizer.param_groups[0]["lr"])
            self.losses.append(loss.item().hex())
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.position += _BATCH


def what_to_save(run: Run) -> dict[str, object]:
    """Return all that the run needs to go on exactly."""
    raise NotImplementedError


def solution(run: Run) -> dict[str, object]:
    return {
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "scheduler": run.scheduler.state_dict(),
        "position": run.position,
        "rng": torch.get_rng_state(),
    }


def wrong_weights_only(run: Run) -> dict[str, object]:
    """The weights alone are enough to use the model, not to train on: all the rest of the run begins again."""
    return {"model": run.model.state_dict()}


def wrong_model_and_optimizer(run: Run) -> dict[str, object]:
    """Model and optimizer are not all: the run has a place in its data, in its learning rates and in its random numbers too."""
    return {"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()}


def wrong_seed_for_the_random_state(run: Run) -> dict[str, object]:
    """Dropout goes on with other random numbers: a seed says where they began, the generator's state says where they are."""
    return {
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "scheduler": run.scheduler.state_dict(),
        "position": run.position,
        "seed": run.seed,
    }


def check(answer: Callable[..., object], rank: int, world_size: int) -> Iterator[Case]:
    draw = random.Random("0.1")
    for seed, stop in ((draw.randrange(1000), stop) for stop in (3, 6)):
        unbroken = Run(seed)
        unbroken.train(_STEPS)
        stopped = Run(seed)
        stopped.train(stop)
        saved = answer(stopped)
        if not isinstance(saved, dict):
            yield Case(saved, "a dict", where="what your function returns")
            continue
        yield Case(sorted(saved.keys() - set(_KNOWN), key=str), [], where="names that nothing is put back from")
        resumed = Run(seed)
        fault = _put_back(resumed, saved)
        yield Case(fault or "done", "done", where="putting back what you saved")
        if fault is None:
            yield from _compare(unbroken, stopped, resumed, stop)


def _put_back(run: Run, saved: dict[str, object]) -> str | None:
    """Carry what was saved through a file into a run; say what went wrong."""
    try:
        torch.save(saved, file := io.BytesIO())
        file.seek(0)
        loaded = torch.load(file)
    except Exception:
        return "it holds an object, and not the object's state"
    for name in [name for name in _KNOWN if name in loaded]:
        try:
            _put(run, name, loaded[name])
        except Exception as error:
            return f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}"
    return None


def _put(run: Run, name: str, value: Any) -> None:
    match name:
        case "position":
            run.position = int(value)
        case "seed":
            torch.manual_seed(value)
        case "rng":
            torch.set_rng_state(value)
        case _:
            getattr(run, name).load_state_dict(value)


def _compare(unbroken: Run, stopped: Run, resumed: Run, stop: int) -> Iterator[Case]:
    after = f"resumed after step {stop} of {_STEPS}"
    yield Case(_differing_weights(resumed, stopped), [], where=f"{after}, the weights that it begins with and should not")
    resumed.train(min(_STEPS - stop, (len(resumed.data) - resumed.position) // _BATCH))
    yield Case(resumed.samples, unbroken.samples[stop:], where=f"{after}, the first sample of each step")
    yield Case(resumed.rates, unbroken.rates[stop:], where=f"{after}, the learning rates")
    pairs = zip(resumed.losses, unbroken.losses[stop:], strict=False)
    differing = [step for step, (one, other) in enumerate(pairs, start=stop + 1) if one != other]
    yield Case(differing, [], where=f"{after}, the steps with another loss")
    yield Case(_differing_weights(resumed, unbroken), [], where=f"{after}, the weights that differ at the end")


def _differing_weights(one: Run, other: Run) -> list[str]:
    weights = other.model.state_dict()
    return [name for name, tensor in one.model.state_dict().items() if not torch.equal(tensor, weights[name])]
