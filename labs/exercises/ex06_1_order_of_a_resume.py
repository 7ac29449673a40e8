"""The order of a resume

A new process resumes a run in the middle of an epoch. You get the eight parts of the resume, in a wrong order. Return them in
an order after which the run goes on exactly; there are several:

- "make model", "make optimizer", "make scheduler": each as at the beginning of a run; the scheduler is a warm-up;
- "start loader": an iterator over the batches that are left;
- "load model", "load optimizer", "load scheduler": `load_state_dict` with what was saved;
- "random state": torch's generator gets back the state that was saved.
"""

import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from ckptlab.course.exercise import Case

MINUTES = 5
WORLD_SIZES = (1,)
IN_KERNEL = True
HINTS = (
    "Nothing can be loaded before it is made. An optimizer is made of a model's parameters, a scheduler of an optimizer.",
    "A scheduler that is made sets the learning rate of step 0 in its optimizer. What if the optimizer was loaded before?",
    "A new model's weights are drawn at random, and a loader's iterator draws a seed. What has to come after both?",
)

_BATCHES = 8
_MAKES = {"model": "make model", "optimizer": "make optimizer", "scheduler": "make scheduler"}


def order_of_a_resume(parts: list[str]) -> list[str]:
    """Return the parts of a resume in an order after which the run goes on exactly."""
    raise NotImplementedError


def solution(parts: list[str]) -> list[str]:
    makes = ["make model", "make optimizer", "make scheduler", "start loader"]
    return [*makes, "load model", "load optimizer", "load scheduler", "random state"]


def wrong_random_state_first(parts: list[str]) -> list[str]:
    """The random state is right, and then it moves: making the model draws its weights, and starting the loader draws too."""
    makes = ["make model", "make optimizer", "make scheduler", "start loader"]
    return ["random state", *makes, "load model", "load optimizer", "load scheduler"]


def wrong_loader_last(parts: list[str]) -> list[str]:
    """The loader starts last, and its iterator draws a seed, so all that is random afterwards is off by one draw."""
    makes = ["make model", "make optimizer", "make scheduler"]
    return [*makes, "load model", "load optimizer", "load scheduler", "random state", "start loader"]


def wrong_each_loaded_when_made(parts: list[str]) -> list[str]:
    """Making the scheduler set the learning rate of an optimizer that was loaded already; "load scheduler" does not undo it."""
    optimizer = ["make optimizer", "load optimizer", "make scheduler", "load scheduler"]
    return ["make model", "load model", *optimizer, "start loader", "random state"]


def check(answer: Callable[[list[str]], list[str]], rank: int, world_size: int) -> Iterator[Case]:
    drawn = random.Random("6.1")
    parts = sorted(["start loader", "random state", *_MAKES.values(), *(f"load {name}" for name in _MAKES)])
    given = drawn.sample(parts, len(parts))
    found = answer(list(given))
    if not isinstance(found, list) or sorted(map(str, found)) != parts:
        yield Case(found, given, where="all eight parts, each once, in any order")
        return
    for stop, seed in ((drawn.randint(3, 5), drawn.randrange(99)) for _ in range(2)):
        torch.manual_seed(seed)
        run = _Run(seed, 0)
        _do(["make model", "make optimizer", "make scheduler", "start loader"], run, {})
        run.train(stop)
        saved: dict[str, Any] = {name: getattr(run, name).state_dict() for name in _MAKES} | {"rng": torch.get_rng_state()}
        saved, expected = _copied(saved), _next_numbers()
        run.train(_BATCHES - stop)
        resumed = _Run(seed, stop)
        torch.manual_seed(seed + 1)  # a new process
        after = f"resumed after step {stop} of {_BATCHES}"
        fault = _do(found, resumed, saved)
        yield Case(fault or "done", "done", where=f"{after}, doing all parts")
        if fault is None:
            yield Case(_next_numbers(), expected, where=f"{after}, the next random numbers")
            resumed.train(_BATCHES - stop)
            yield Case(resumed.rates, run.rates[stop:], where=f"{after}, the learning rates")
            pairs = zip(resumed.losses, run.losses[stop:], strict=True)
            differing = [step for step, (one, other) in enumerate(pairs, start=stop + 1) if one != other]
            yield Case(differing, [], where=f"{after}, the steps with another loss")
            yield Case(_differing(resumed.model, run.model), [], where=f"{after}, the weights that differ at the end")


class _Run:
    """A run whose parts are made and loaded one by one."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    batches: Iterator[torch.Tensor]

    def __init__(self, seed: int, done: int) -> None:
        self.data = torch.randn(_BATCHES * 4, 6, generator=torch.Generator().manual_seed(seed))[done * 4 :]
        self.losses: list[str] = []  # exact
        self.rates: list[float] = []

    def train(self, num_steps: int) -> None:
        for _ in range(num_steps):
            loss = self.model(next(self.batches)).square().mean()
            self.losses.append(loss.item().hex())
            self.rates.append(self.optimizer.param_groups[0]["lr"])
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()


def _do(parts: list[str], run: _Run, saved: dict[str, Any]) -> str | None:
    """Do the parts in their order; say which one could not be done."""
    for part in parts:
        try:
            _do_part(part, run, saved)
        except AttributeError as error:
            return f"{part!r} comes before {_MAKES[str(error.name)]!r}"
    return None


def _do_part(part: str, run: _Run, saved: dict[str, Any]) -> None:
    match part.split():
        case ["make", "model"]:
            run.model = nn.Sequential(nn.Linear(6, 12), nn.Dropout(), nn.Linear(12, 1))
        case ["make", "optimizer"]:
            run.optimizer = torch.optim.AdamW(run.model.parameters(), lr=0.1)
        case ["make", "scheduler"]:
            run.scheduler = torch.optim.lr_scheduler.LinearLR(run.optimizer, start_factor=0.25, total_iters=_BATCHES)
        case ["start", "loader"]:
            run.batches = iter(DataLoader(run.data, batch_size=4))  # type: ignore[arg-type]  # a tensor does as a data set
        case ["random", "state"]:
            torch.set_rng_state(saved["rng"])
        case [_, name]:
            getattr(run, name).load_state_dict(saved[name])


def _copied(saved: dict[str, Any]) -> dict[str, Any]:
    """Carry what was saved through a file: the run goes on with its own."""
    torch.save(saved, file := io.BytesIO())
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file)
    return loaded


def _next_numbers() -> list[int]:
    """Look at what torch's generator gives next, and leave it where it is."""
    before = torch.get_rng_state()
    numbers: list[int] = torch.randint(1000, (3,)).tolist()
    torch.set_rng_state(before)
    return numbers


def _differing(one: nn.Module, other: nn.Module) -> list[str]:
    weights = other.state_dict()
    return [name for name, tensor in one.state_dict().items() if not torch.equal(tensor, weights[name])]
