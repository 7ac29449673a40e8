"""Find the missing piece

A run was stopped in the middle of an epoch and resumed, and one piece of its state may have been lost. You get the records of
an unbroken run from its first step on, and those of the resumed run from the step after the stop to the same last step. An
epoch has `STEPS_IN_EPOCH` steps. A record has `samples`, what the step trained on, and `loss`. The model has dropout. Return
what was lost: "epoch" (the run believed to be in epoch 0), "position" (it began its epoch again), "random state", "optimizer",
or "nothing".
"""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import nn

from ckptlab.course.exercise import Case
from ckptlab.resume.sampler import order

MINUTES = 7
WORLD_SIZES = (1,)
STEPS_IN_EPOCH = 5
HINTS = (
    "The unbroken run did the same steps last: `unbroken[-len(resumed):]`. Compare samples first: other samples, other loss.",
    "Whose samples are `resumed[0].samples`? `len(unbroken) - len(resumed)` steps came before it: where did its epoch begin?",
    "The first loss is computed before the optimizer's first step. Which loss differs first when only the optimizer is lost?",
)

_BATCH = 3
_PIECES = ("epoch", "position", "random state", "optimizer", "nothing")


class Record(NamedTuple):
    """One step of a run."""

    samples: list[int]
    loss: float


def missing_piece(unbroken: list[Record], resumed: list[Record]) -> str:
    """Return "epoch", "position", "random state", "optimizer" or "nothing"."""
    raise NotImplementedError


def solution(unbroken: list[Record], resumed: list[Record]) -> str:
    rest = unbroken[-len(resumed) :]
    if resumed[0].samples != rest[0].samples:
        stop = len(unbroken) - len(resumed)
        begin = stop - stop % STEPS_IN_EPOCH
        return "position" if resumed[0].samples == unbroken[begin].samples else "epoch"
    if resumed[0].loss != rest[0].loss:
        return "random state"
    return "nothing" if [record.loss for record in resumed] == [record.loss for record in rest] else "optimizer"


def wrong_any_other_loss(unbroken: list[Record], resumed: list[Record]) -> str:
    """A wrong loss has many causes. Other samples give another loss too, so look at the samples before the losses."""
    rest = unbroken[-len(resumed) :]
    if resumed[0].loss != rest[0].loss:
        return "random state"
    return "nothing" if [record.loss for record in resumed] == [record.loss for record in rest] else "optimizer"


def wrong_other_samples_are_position(unbroken: list[Record], resumed: list[Record]) -> str:
    """Other samples have two causes: the epoch begun again, or the right place in epoch 0's order. See whose they are."""
    rest = unbroken[-len(resumed) :]
    if resumed[0].samples != rest[0].samples:
        return "position"
    if resumed[0].loss != rest[0].loss:
        return "random state"
    return "nothing" if [record.loss for record in resumed] == [record.loss for record in rest] else "optimizer"


def wrong_optimizer_at_once(unbroken: list[Record], resumed: list[Record]) -> str:
    """A lost optimizer leaves the first loss right and shows one step later; a lost random state makes the first one wrong."""
    rest = unbroken[-len(resumed) :]
    if resumed[0].samples != rest[0].samples:
        stop = len(unbroken) - len(resumed)
        begin = stop - stop % STEPS_IN_EPOCH
        return "position" if resumed[0].samples == unbroken[begin].samples else "epoch"
    if resumed[0].loss != rest[0].loss:
        return "optimizer"
    return "nothing" if [record.loss for record in resumed] == [record.loss for record in rest] else "random state"


def wrong_first_step_only(unbroken: list[Record], resumed: list[Record]) -> str:
    """A first step that is right proves little: a lost optimizer shows one step later. Compare all steps."""
    rest = unbroken[-len(resumed) :]
    if resumed[0].samples != rest[0].samples:
        stop = len(unbroken) - len(resumed)
        begin = stop - stop % STEPS_IN_EPOCH
        return "position" if resumed[0].samples == unbroken[begin].samples else "epoch"
    return "random state" if resumed[0].loss != rest[0].loss else "nothing"


def check(answer: Callable[[list[Record], list[Record]], str], rank: int, world_size: int) -> Iterator[Case]:
    drawn = random.Random("5.3")
    for lost in drawn.sample(_PIECES, len(_PIECES)):
        seed, stop = drawn.randrange(99), STEPS_IN_EPOCH * drawn.randint(1, 2) + drawn.randint(1, STEPS_IN_EPOCH - 2)
        steps = stop + drawn.randint(3, 5)
        unbroken = _Run(seed).train(steps)
        stopped = _Run(seed)
        stopped.train(stop)
        resumed = stopped.resume(lost).train(steps - stop)
        yield Case(answer(list(unbroken), list(resumed)), lost, where=f"stopped after step {stop} of {steps}")


class _Run:
    """A run that can be resumed with one piece of its state lost."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.seed, self.epoch, self.position = seed, 0, 0  # position in steps
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.data = torch.randn(STEPS_IN_EPOCH * _BATCH, 4, generator=torch.Generator().manual_seed(seed))

    def train(self, num_steps: int) -> list[Record]:
        """Train, and return a record of each step."""
        return [self._step() for _ in range(num_steps)]

    def resume(self, lost: str) -> "_Run":
        """Return the run as a new process would have it, without what was lost."""
        random_state = torch.get_rng_state()
        run = _Run(self.seed)
        run.model.load_state_dict(self.model.state_dict())
        run.epoch = 0 if lost == "epoch" else self.epoch
        run.position = 0 if lost == "position" else self.position
        if lost != "optimizer":
            run.optimizer.load_state_dict(self.optimizer.state_dict())
        if lost != "random state":
            torch.set_rng_state(random_state)
        return run

    def _step(self) -> Record:
        if self.position == STEPS_IN_EPOCH:
            self.epoch, self.position = self.epoch + 1, 0
        begin = self.position * _BATCH
        samples = order(len(self.data), self.seed, self.epoch)[begin : begin + _BATCH]
        self.position += 1
        loss = self.model(self.data[samples]).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return Record(samples.tolist(), loss.item())
