"""When may a save happen

`body` holds the lines of a training loop's body. A save may stand behind any of them. It keeps model, optimizer, scheduler,
random state, and how many batches were fetched, but no gradients and no batch. A run that resumes begins with the first line of
the body. Return the numbers of the lines, counted from 0, behind which a save is exact:

- "fetch" takes the next batch; "backward" computes loss and gradients of it (the model has dropout);
- "optimizer" and "scheduler" do a step; "zero_grad" drops the gradients; "log" prints the loss.
"""

import copy
import random
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import nn

from ckptlab.course.exercise import Case

MINUTES = 6
WORLD_SIZES = (1,)
IN_KERNEL = True
HINTS = (
    "Which lines change something that the save keeps? With some of them done and others not, what does the resumed run do?",
    "`zero_grad` and `log` change nothing that is kept: a new process has no gradients. The other four do.",
    "Exact is a save before the first of these lines, when none is done, and from the last of them on, when all are.",
)

_BATCHES = 12
_SAVE_IN = 2  # the round of the loop, counted from 0


def exact_saves(body: list[str]) -> list[int]:
    """Return the numbers of the lines behind which a save is exact."""
    raise NotImplementedError


def solution(body: list[str]) -> list[int]:
    changing = [number for number, line in enumerate(body) if line not in ("zero_grad", "log")]
    return [number for number in range(len(body)) if number < changing[0] or number >= changing[-1]]


def wrong_behind_the_optimizer(body: list[str]) -> list[int]:
    """Between the optimizer's step and the scheduler's, the scheduler's is still to do: the resumed run never does it."""
    first = next(number for number, line in enumerate(body) if line != "zero_grad")
    return [number for number in range(len(body)) if number < first or number >= body.index("optimizer")]


def wrong_between_batches(body: list[str]) -> list[int]:
    """Behind the first "backward" of several, the gradients so far are in no checkpoint, and their batches count as fetched."""
    changing = [number for number, line in enumerate(body) if line not in ("zero_grad", "log")]
    between = {number for number in changing[:-1] if body[number : number + 2] == ["backward", "fetch"]}
    return [number for number in range(len(body)) if number < changing[0] or number in between or number >= changing[-1]]


def wrong_before_any_backward(body: list[str]) -> list[int]:
    """Behind "fetch" the batch counts as fetched, and nobody has trained on it: the resumed run leaves it out."""
    last = max(body.index("optimizer"), body.index("scheduler"))
    return [number for number in range(len(body)) if number < body.index("backward") or number >= last]


def wrong_last_line_only(body: list[str]) -> list[int]:
    """Safe, but not all: a new process has no gradients, so a save need not wait for `zero_grad`, nor for what only prints."""
    return [len(body) - 1]


def check(answer: Callable[[list[str]], list[int]], rank: int, world_size: int) -> Iterator[Case]:
    for body in _bodies(random.Random("6.2")):
        yield Case(answer(list(body)), _exact_saves(tuple(body)), where=", ".join(body))


def _bodies(drawn: random.Random) -> Iterator[list[str]]:
    """Make bodies as one finds them: gradients dropped first or last, one batch or several, the loss printed somewhere."""
    places = drawn.sample(("first", "behind the optimizer", "last", "first", "last"), 5)
    for number, place in enumerate(places):
        body = ["fetch", "backward"] * (1 + number % 3) + ["optimizer", "scheduler"]
        body.insert({"first": 0, "behind the optimizer": -1, "last": len(body)}[place], "zero_grad")
        body.insert(drawn.randint(body.index("backward") + 1, len(body)), "log")
        yield body


@cache  # the named wrong answers are asked for the same bodies
def _exact_saves(body: tuple[str, ...]) -> list[int]:
    """Save behind each line and resume from it; return where the end is the unbroken run's, bit for bit."""
    (unbroken := _Run()).train(body)
    end = unbroken.end()  # now: torch's generator is everybody's
    return [number for number in range(len(body)) if _resumed_behind(body, number).end() == end]


def _resumed_behind(body: tuple[str, ...], number: int) -> "_Run":
    """Train until a save behind that line in round `_SAVE_IN`, and on from the save to the end."""
    stopped = _Run()
    stopped.do(body * _SAVE_IN + body[: number + 1])
    resumed = stopped.resumed()
    resumed.train(body)
    return resumed


class _Run:
    """A run whose loop's lines are done one by one."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(3, 6), nn.Dropout(), nn.Linear(6, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        self.data = torch.randn(_BATCHES, 4, 3)
        self.fetched = 0

    def train(self, body: tuple[str, ...]) -> None:
        """Go round the loop as long as there are batches for it."""
        while self.fetched + body.count("fetch") <= _BATCHES:
            self.do(body)

    def do(self, lines: tuple[str, ...]) -> None:
        for line in lines:
            match line:
                case "fetch":
                    self.fetched += 1
                case "backward":
                    self.model(self.data[self.fetched - 1]).square().mean().backward()
                case "optimizer" | "scheduler":
                    getattr(self, line).step()
                case "zero_grad":
                    self.optimizer.zero_grad()

    def resumed(self) -> "_Run":
        """Save, and return a new run that has what was saved; torch's generator is where it was."""
        state, run = torch.get_rng_state(), _Run()
        for name in ("model", "optimizer", "scheduler"):
            getattr(run, name).load_state_dict(copy.deepcopy(getattr(self, name).state_dict()))
        run.fetched = self.fetched
        torch.set_rng_state(state)
        return run

    def end(self) -> list[object]:
        """Return all that the run ends with, exactly."""
        weights = [tensor.tolist() for tensor in self.model.state_dict().values()]
        return [weights, self.scheduler.get_last_lr(), self.fetched, torch.get_rng_state().tolist()]
