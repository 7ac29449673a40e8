"""Schedules and optimizers go on exactly: the same learning rates and the same parameters as without the break."""

from collections.abc import Callable
from pathlib import Path
from pprint import pformat

import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler as schedules

from ckptlab.resume import Checkpointer, TrainState

SCHEDULES: dict[str, Callable[[optim.Optimizer], object]] = {
    "LambdaLR": lambda o: schedules.LambdaLR(o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda o: schedules.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: schedules.StepLR(o, 2),
    "MultiStepLR": lambda o: schedules.MultiStepLR(o, [2, 4, 4, 6]),
    "ConstantLR": lambda o: schedules.ConstantLR(o, total_iters=4),
    "LinearLR": lambda o: schedules.LinearLR(o, total_iters=6),
    "ExponentialLR": lambda o: schedules.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: schedules.PolynomialLR(o, total_iters=7),
    "CosineAnnealingLR": lambda o: schedules.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: schedules.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "OneCycleLR": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=20),
    "ReduceLROnPlateau": lambda o: schedules.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, total_iters=3), schedules.MultiStepLR(o, [2, 4])], milestones=[3]
    ),
    "ChainedScheduler": lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o), schedules.ExponentialLR(o, 0.9)]),
}
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], optim.Optimizer]] = {
    "AdamW": lambda p: optim.AdamW(p, lr=0.1),
    "AdamW amsgrad, two groups": lambda p: optim.AdamW([{"params": p[:1]}, {"params": p[1:], "lr": 0.02}], amsgrad=True),
    "AdamW, lr as a tensor": lambda p: optim.AdamW(p, lr=torch.tensor(0.1)),
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
}


def make(optimizer: str, schedule: str | None) -> tuple[TrainState, Callable[[], None]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1, dtype=torch.float32))
    opt = OPTIMIZERS[optimizer](list(model.parameters()))
    scheduler = SCHEDULES[schedule](opt) if schedule else None
    state = TrainState(model=model, optimizer=opt, scheduler=scheduler)

    def train_step() -> None:
        opt.zero_grad()
        loss = model(torch.full((2, 4), float(state.step % 3))).square().mean()
        loss.backward()
        opt.step()
        if isinstance(scheduler, schedules.ReduceLROnPlateau):
            scheduler.step(1.0)
        elif scheduler is not None:
            scheduler.step()
        state.step += 1

    return state, train_step


def outcome(state: TrainState) -> list[object]:
    lrs = [float(group["lr"]) for group in state.optimizer.param_groups]
    stateful = {name: pformat(value.state_dict()) for name, value in state.stateful.items()}
    return [lrs, stateful, *(param.detach().numpy().tobytes() for param in state.model.parameters())]


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step:UserWarning")  # of CyclicLR's and SequentialLR's own making
@pytest.mark.parametrize(
    ("optimizer", "schedule"), [(name, None) for name in OPTIMIZERS] + [("SGD momentum", name) for name in SCHEDULES]
)
def test_it_goes_on_as_if_there_had_been_no_break(optimizer: str, schedule: str | None, tmp_path: Path) -> None:
    unbroken, step_unbroken = make(optimizer, schedule)
    for _ in range(9):
        step_unbroken()
    broken, step_broken = make(optimizer, schedule)
    for _ in range(3):
        step_broken()
    Checkpointer(tmp_path).save(broken)

    again, step_again = make(optimizer, schedule)
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.resume(again) == 3
    for _ in range(6):
        step_again()
    assert outcome(again) == outcome(unbroken)


def test_every_schedule_of_torch_is_tried() -> None:
    known = {name for name in schedules.__all__ if name not in ("LRScheduler", "_LRScheduler", "SWALR")}
    assert known - {"SWALR"} <= SCHEDULES.keys()
