"""Resume exactly

`run` is a training run in plain PyTorch, made anew in a new process, and `saved` holds what was saved of it in the middle of an
epoch. Put all of it back into `run`, so that the run goes on exactly. `saved` has "model", "optimizer" and "scheduler";
"order", the state of `run.order` when the epoch began; "done", how many batches of the epoch were trained on; and "random",
the state of torch's generator.

`run.begin_epoch()` draws an order from the generator `run.order` and makes `run.batches`, the iterator from which training
takes its batches; its data set adds noise to each sample, drawn from torch's generator. `run.done` counts the batches of the
epoch that were trained on; the next save keeps it.
"""

import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ckptlab.course.exercise import Case

MINUTES = 9
WORLD_SIZES = (1,)
HINTS = (
    "Three `load_state_dict`, two `set_state` or `set_rng_state`, and the iterator: which of these draw random numbers?",
    "`run.order.set_state(...)` comes before `run.begin_epoch()`, which draws from it. Then `next(run.batches)`, how often?",
    "Beginning the epoch and fetching the batches both draw from torch's generator. So `torch.set_rng_state` comes last.",
)

_IN_EPOCH = 6


class Noisy(Dataset[tuple[int, Tensor]]):
    """Samples with their numbers; noise is added when they are fetched."""

    def __init__(self, samples: Tensor) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        return index, self.samples[index] + 0.1 * torch.randn(5)


class Run:
    """A training run; made from its seed, it is at its beginning."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.data = Noisy(torch.randn(_IN_EPOCH * 4, 5))
        self.model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 4 * _IN_EPOCH)
        self.order = torch.Generator().manual_seed(seed)
        self.batches: Iterator[list[Tensor]] = iter(())  # numbers of samples, samples
        self.done = 0
        self.seen: dict[str, list[object]] = {"samples": [], "learning rates": [], "losses": []}

    def begin_epoch(self) -> None:
        """Draw the order of an epoch and start its iterator."""
        self.order_began, self.done = self.order.get_state(), 0
        order = torch.randperm(len(self.data), generator=self.order).tolist()
        batches = [order[begin : begin + 4] for begin in range(0, len(order), 4)]
        self.batches = iter(DataLoader(self.data, batch_sampler=batches))

    def train(self, num_steps: int) -> None:
        """Train, and keep what was seen on the way."""
        for _ in range(num_steps):
            batch = next(self.batches, None)
            if batch is None:
                self.begin_epoch()
                batch = next(self.batches)
            numbers, samples = batch
            loss = self.model(samples).square().mean()
            loss.backward()
            self.seen["samples"].append(numbers.tolist())
            self.seen["learning rates"].append(self.optimizer.param_groups[0]["lr"])
            self.seen["losses"].append(loss.item())
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.done += 1


def resume(run: Run, saved: dict[str, Any]) -> None:
    """Put what was saved into `run`, so that it goes on exactly."""
    raise NotImplementedError


def solution(run: Run, saved: dict[str, Any]) -> None:
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.scheduler.load_state_dict(saved["scheduler"])
    run.order.set_state(saved["order"])
    run.begin_epoch()
    for _ in range(saved["done"]):
        next(run.batches)
    run.done = saved["done"]
    torch.set_rng_state(saved["random"])


def wrong_random_state_too_early(run: Run, saved: dict[str, Any]) -> None:
    """Right samples, other noise: beginning the epoch and skipping batches move the random state, so it comes back last."""
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.scheduler.load_state_dict(saved["scheduler"])
    torch.set_rng_state(saved["random"])
    run.order.set_state(saved["order"])
    run.begin_epoch()
    for _ in range(saved["done"]):
        next(run.batches)
    run.done = saved["done"]


def wrong_order_too_late(run: Run, saved: dict[str, Any]) -> None:
    """`begin_epoch` has drawn its order before `run.order` got its state back: these are the samples of another epoch."""
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.scheduler.load_state_dict(saved["scheduler"])
    run.begin_epoch()
    run.order.set_state(saved["order"])
    for _ in range(saved["done"]):
        next(run.batches)
    run.done = saved["done"]
    torch.set_rng_state(saved["random"])


def wrong_epoch_again(run: Run, saved: dict[str, Any]) -> None:
    """The epoch begins again: of its batches, `saved["done"]` were trained on before, and have to be skipped."""
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.scheduler.load_state_dict(saved["scheduler"])
    run.order.set_state(saved["order"])
    run.begin_epoch()
    run.done = saved["done"]
    torch.set_rng_state(saved["random"])


def wrong_second_resume(run: Run, saved: dict[str, Any]) -> None:
    """This resume is exact, the next one is not: `run.done` counts from here, and the next save keeps it. Give it its value."""
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.scheduler.load_state_dict(saved["scheduler"])
    run.order.set_state(saved["order"])
    run.begin_epoch()
    for _ in range(saved["done"]):
        next(run.batches)
    torch.set_rng_state(saved["random"])


def wrong_scheduler_at_its_beginning(run: Run, saved: dict[str, Any]) -> None:
    """The first step is right, for the optimizer brings its learning rate; then the scheduler goes on from its beginning."""
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.order.set_state(saved["order"])
    run.begin_epoch()
    for _ in range(saved["done"]):
        next(run.batches)
    run.done = saved["done"]
    torch.set_rng_state(saved["random"])


def check(answer: Callable[[Run, dict[str, Any]], object], rank: int, world_size: int) -> Iterator[Case]:
    drawn = random.Random("6.3")
    for epoch in (1, 0, 2):
        stop, more = epoch * _IN_EPOCH + drawn.randint(2, _IN_EPOCH - 2), drawn.randint(_IN_EPOCH, _IN_EPOCH + 3)
        run = Run(seed := drawn.randrange(99))
        run.train(stop)
        saved = _saved(run)
        run.train(more)
        resumed = Run(seed)
        after = f"resumed after step {stop}, in epoch {epoch}"
        yield Case(answer(resumed, saved), None, where=f"{after}, calling resume, which returns nothing")
        yield Case(resumed.done, saved["done"], where=f"{after}, run.done before it trains on")
        resumed.train(more)
        yield Case(resumed.seen["samples"][0], run.seen["samples"][stop], where=f"{after}, the samples of the next step")
        for what, values in resumed.seen.items():
            pairs = zip(values, run.seen[what][stop:], strict=True)
            differing = [step for step, (one, other) in enumerate(pairs, start=stop + 1) if one != other]
            yield Case(differing, [], where=f"{after}, the steps with other {what}")
        yield Case(_differing(resumed, run), [], where=f"{after}, what differs in the model at the end")


def _saved(run: Run) -> dict[str, Any]:
    """Carry all that there is to save through a file."""
    parts = {name: getattr(run, name).state_dict() for name in ("model", "optimizer", "scheduler")}
    torch.save({**parts, "order": run.order_began, "done": run.done, "random": torch.get_rng_state()}, file := io.BytesIO())
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file)
    return loaded


def _differing(one: Run, other: Run) -> list[str]:
    weights = other.model.state_dict()
    return [name for name, tensor in one.model.state_dict().items() if not torch.equal(tensor, weights[name])]
