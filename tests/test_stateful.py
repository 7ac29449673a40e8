"""What has a `state_dict` goes on exactly: schedules, scalers, counters, averaged weights. What cannot come back is refused."""

from collections.abc import Callable
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest
import torch
import torch.distributed as dist
from states import local_bytes
from torch import nn, optim
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

from ckptlab.errors import SaveError, UsageError
from ckptlab.ranks import World
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


def make(schedule: str) -> tuple[TrainState, Callable[[], None]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler: Any = SCHEDULES[schedule](optimizer)
    state = TrainState(model=model, optimizer=optimizer, scheduler=scheduler)

    def train_step() -> None:
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), float(state.step % 3))).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step(1.0) if isinstance(scheduler, schedules.ReduceLROnPlateau) else scheduler.step()
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
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_goes_on_as_if_there_had_been_no_break(schedule: str, tmp_path: Path) -> None:
    unbroken, step_unbroken = make(schedule)
    for _ in range(9):
        step_unbroken()
    broken, step_broken = make(schedule)
    for _ in range(3):
        step_broken()
    save_once(tmp_path, broken)

    again, step_again = make(schedule)
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.resume(again) == 3
    for _ in range(6):
        step_again()
    assert outcome(again) == outcome(unbroken)


def test_every_schedule_of_torch_is_tried() -> None:
    assert set(schedules.__all__) - {"LRScheduler"} == SCHEDULES.keys()


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


class Counter:
    """Anything with a state: what exact JSON has to mark to bring it back as it was."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"seen": 0, "best": (float("inf"), None), "lengths": {}, "mean": torch.zeros(2)}

    def count(self, loss: float) -> None:
        lengths = {**self.state["lengths"], len(self.state["lengths"]) + 1: loss}
        self.state = {"seen": True, "best": (loss, [b"\x00"]), "lengths": lengths, "mean": self.state["mean"] + loss}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def test_any_object_with_a_state_comes_back_with_the_types_that_it_had(tmp_path: Path) -> None:
    counter, other = Counter(), Counter()
    for loss in (0.1, -0.0, float("-inf")):
        counter.count(loss)
    model = nn.Linear(1, 1)
    save_once(tmp_path, TrainState(model=model, optimizer=optim.SGD(model.parameters()), counter=counter))
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.resume(TrainState(model=model, optimizer=optim.SGD(model.parameters()), counter=other))
    assert pformat(other.state) == pformat(counter.state)


def make_averaged(features: int, seed: int, where: str) -> TrainState:
    """A net and the moving average of its weights: given by a name, or as a part of the model; there it may be sharded."""
    torch.manual_seed(seed)
    net = nn.Linear(features, 32)
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for module in (net, average.module) if where == "in a sharded model" else ():
        fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    model = nn.ModuleDict({"net": net} if where == "by a name" else {"net": net, "average": average})
    state = TrainState(model=model, optimizer=optim.AdamW(net.parameters()), average=average if where == "by a name" else None)

    def follow(*_: object) -> None:
        average.update_parameters(net)

    state.optimizer.register_step_post_hook(follow)
    return state


def train_averaged(state: TrainState, until: int) -> None:
    while state.step < until:
        state.step += 1
        inputs = torch.arange(float(state.model["net"].weight.shape[1])).add(state.step).sin()
        state.optimizer.zero_grad()
        state.model["net"](inputs).square().mean().backward()
        state.optimizer.step()


def go_on_averaged(run: Path, features: int, where: str) -> list[dict[str, bytes]]:
    unbroken, broken, resumed = (make_averaged(features, seed, where) for seed in (0, 0, 1))
    train_averaged(unbroken, 5)
    train_averaged(broken, 2)
    save_once(run, broken)
    with Checkpointer(run) as checkpointer:
        assert checkpointer.resume(resumed) == 2
    train_averaged(resumed, 5)
    return [
        local_bytes({**state.model.state_dict(), **(state.stateful["average"].state_dict() if state.stateful else {})})
        for state in (unbroken, resumed)
    ]


@pytest.mark.parametrize(("features", "where"), [(5, "by a name"), (33, "in the model")])
def test_averaged_weights_go_on_as_if_there_had_been_no_break(features: int, where: str, tmp_path: Path) -> None:
    unbroken, resumed = go_on_averaged(tmp_path, features, where)
    assert resumed == unbroken


def test_averaged_weights_in_a_sharded_model_go_on_too(tmp_path: Path) -> None:
    with World(2) as world:
        for unbroken, resumed in world.run(go_on_averaged, tmp_path, 33, "in a sharded model"):
            assert resumed == unbroken


def test_averaged_weights_too_large_for_a_state_are_refused_by_name(tmp_path: Path) -> None:
    state = make_averaged(33, 0, "by a name")
    with pytest.raises(SaveError, match=r"average\.module\.weight: .* 4224 bytes.* at most 4096"):
        save_once(tmp_path, state)
    assert not list(tmp_path.glob("*step*"))
