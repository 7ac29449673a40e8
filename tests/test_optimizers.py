"""Schedules and optimizers go on exactly: the same learning rates and the same parameters as without the break."""

from collections.abc import Callable
from pathlib import Path
from pprint import pformat

import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler as schedules
from torch.utils.data import DataLoader, TensorDataset

from ckptlab.errors import SaveError, UsageError
from ckptlab.resume import Checkpointer, ResumableSampler, TrainState

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


def save_once(run: Path, state: TrainState) -> Path:
    with Checkpointer(run) as checkpointer:
        step = checkpointer.save(state)
    assert step is not None
    return step


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
    save_once(tmp_path, broken)

    again, step_again = make(optimizer, schedule)
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.resume(again) == 3
    for _ in range(6):
        step_again()
    assert outcome(again) == outcome(unbroken)


class Scalar(nn.Module):
    """A parameter without dims, whose moments have none either, and which only its own optimizer state tells from `step`."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.wide = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))


def test_scalar_parameters_and_files_that_go_along(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    model = Scalar()
    optimizer = torch.optim.AdamW(model.parameters())
    (model.scale * model.wide).sum().backward()
    optimizer.step()
    files = {"config.json": tmp_path / "config.json"}
    step = save_once(tmp_path / "run", TrainState(model=model, optimizer=optimizer, model_files=files))
    assert (step / "model/config.json").read_text() == "{}"

    other = Scalar()
    resumed = TrainState(model=other, optimizer=torch.optim.AdamW(other.parameters()))
    with Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.resume(resumed)
    for param, same in zip(model.parameters(), other.parameters(), strict=True):
        expected, found = optimizer.state[param], resumed.optimizer.state[same]
        assert {key: (value.dtype, value.tolist()) for key, value in expected.items()} == {
            key: (value.dtype, value.tolist()) for key, value in found.items()
        }


def test_a_learning_rate_that_is_a_tensor_stays_the_same_object(tmp_path: Path) -> None:
    state, step = make("AdamW, lr as a tensor", None)
    step()
    save_once(tmp_path, state)
    held = state.optimizer.param_groups[0]["lr"]
    held.fill_(0.7)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.resume(state)
    assert state.optimizer.param_groups[0]["lr"] is held
    assert float(held) == pytest.approx(0.1)


def test_a_scaler_that_skips_a_step_does_not_stop_the_save_and_comes_back(tmp_path: Path) -> None:
    def job() -> tuple[TrainState, torch.amp.GradScaler]:
        model = nn.Linear(1, 1)
        loader = DataLoader(TensorDataset(torch.ones(4, 1)), batch_sampler=ResumableSampler(4, global_batch=2, seed=0))
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
        return TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()), loader=loader, scaler=scaler), scaler

    state, scaler = job()
    with Checkpointer(tmp_path, every=1) as checkpointer:
        for ((batch,),) in state.steps(until=1):
            scaler.scale(state.model(batch).sum() * 1e9).backward()
            scaler.step(state.optimizer)
            scaler.update()
            assert scaler.get_scale() == 2.0**126, "the step was to be skipped"
            checkpointer.save_if_due(state)
    again, its_scaler = job()
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.resume(again) == 1
    assert its_scaler.state_dict() == scaler.state_dict()


class WithTensorState(nn.Module):
    """A module whose extra state is a tensor: it would be saved, and never be given back."""

    def get_extra_state(self) -> torch.Tensor:
        return torch.ones(1)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Take nothing."""


def test_what_a_train_state_cannot_bring_back_is_refused_at_once(tmp_path: Path) -> None:
    model = WithTensorState()
    with pytest.raises(SaveError, match="'_extra_state' in the model's state dict is no parameter or buffer"):
        save_once(tmp_path, TrainState(model=model, optimizer=optim.SGD([torch.ones(1)])))
    data = TensorDataset(torch.ones(4, 1))
    with pytest.raises(UsageError, match="batches come from BatchSampler"):
        TrainState(model=model, optimizer=optim.SGD([torch.ones(1)]), loader=DataLoader(data))


def test_every_schedule_of_torch_is_tried() -> None:
    assert set(schedules.__all__) - {"LRScheduler"} == SCHEDULES.keys()
