"""An optimizer goes on exactly: parameters, moments, counters and groups are those of the run that was never broken."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from states import local_bytes
from torch import Tensor, nn, optim
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ckptlab.errors import RankRaised, ResumeError, SaveError
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState

SAVED, LAST = 3, 7


class Homemade(optim.Optimizer):
    """Momentum in float32 whatever the parameter is, and beside it what optimizers keep that is no tensor."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1, "betas": (0.9, 0.5), "limit": float("inf"), "name": None})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor]) -> None:
        with torch.enable_grad():
            loss = float(closure())
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    moment = torch.zeros_like(param, dtype=torch.float32)
                    state |= {"count": 0, "losses": [], "nothing": None, "pair": (True, "a"), "exp_avg": moment}
                state["count"] += 1
                state["losses"].append(loss)
                state["exp_avg"].mul_(group["betas"][0]).add_(param.grad.float(), alpha=group["betas"][1])
                param.sub_(state["exp_avg"] * (group["lr"] * sum(state["losses"]) / state["count"]))


Make = Callable[[list[Any]], optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "Adadelta": lambda p: optim.Adadelta(p, lr=0.1),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.1),
    "Adafactor foreach": lambda p: optim.Adafactor(p, lr=0.1, foreach=True),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
    "Adam": lambda p: optim.Adam(p, lr=0.1),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1),
    "AdamW foreach": lambda p: optim.AdamW(p, lr=0.1, foreach=True),
    "AdamW one by one": lambda p: optim.AdamW(p, lr=0.1, foreach=False),
    "AdamW fused": lambda p: optim.AdamW(p, lr=0.1, fused=True),
    "AdamW capturable": lambda p: optim.AdamW(p, lr=0.1, capturable=True),
    "AdamW amsgrad": lambda p: optim.AdamW(p, lr=0.1, betas=(0.5, 0.6), amsgrad=True),
    "AdamW, lr as a tensor": lambda p: optim.AdamW(p, lr=torch.tensor(0.1)),
    "Adamax": lambda p: optim.Adamax(p, lr=0.1),
    "ASGD": lambda p: optim.ASGD(p, lr=0.1, t0=1),
    "Homemade": Homemade,
    "LBFGS": lambda p: optim.LBFGS(p, lr=0.1, max_iter=2),
    "Muon": lambda p: optim.Muon([param for param in p if param.ndim == 2], lr=0.1),
    "NAdam": lambda p: optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: optim.RAdam(p, lr=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.1, centered=True, momentum=0.9),
    "Rprop": lambda p: optim.Rprop(p, lr=0.1),
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD momentum foreach": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "SGD nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD fused": lambda p: optim.SGD(p[:2], lr=0.1, momentum=0.9, fused=True),  # it takes no gradient that comes late
    "SparseAdam": lambda p: optim.SparseAdam(p, lr=0.1),
}
REFUSED_ON_CPU = {"AdamW capturable": "If capturable=True, params and state_steps must be on supported devices"}
REFUSED_SHARDED = {
    **REFUSED_ON_CPU,
    "Adafactor": "in-place operations that require placement changes are not supported",
    "Adafactor foreach": "in-place operations that require placement changes are not supported",
    "LBFGS": "Cannot flatten unevenly sharded tensor",
    "Rprop": "in-place operations that require placement changes are not supported",
    "SGD fused": "_fused_sgd_.default does not have a sharding strategy registered",
    "SparseAdam": "_to_sparse.default does not have a sharding strategy registered",
}


class Net(nn.Module):
    """Parts of every fate: trained, frozen, never used, and used for the first time after the resume."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.frozen, self.unused, self.afterwards = (nn.Linear(7, 5) for _ in range(4))
        self.frozen.requires_grad_(False)

    def forward(self, inputs: Tensor, step: int) -> Tensor:
        found = self.used(inputs) + self.frozen(inputs)
        return (found + self.afterwards(inputs) if step > SAVED else found).tanh()


def make_net(sharded: bool, seed: int, dtype: torch.dtype = torch.float32) -> Net:
    """Another seed gives other values: nothing of a fresh net must be left after a resume."""
    torch.manual_seed(seed)
    model = Net().to(dtype)
    if sharded:
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def train(state: TrainState, until: int) -> None:
    """Train with learning rates that fall, so that those of a fresh optimizer are others than those saved."""
    model, optimizer = state.model, state.optimizer
    dtype = next(model.parameters()).dtype

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = model(torch.arange(14.0).reshape(2, 7).add(state.step).sin().to(dtype), state.step).square().mean()
        value.backward()
        for param in model.parameters() if isinstance(optimizer, optim.SparseAdam) else ():
            param.grad = None if param.grad is None else param.grad.to_sparse()
        return value.detach()

    while state.step < until:
        state.step += 1
        optimizer.step(loss)
        for group in optimizer.param_groups:
            group["lr"] *= 0.9


def told(value: Any) -> str:
    """Return a value in words that differ where type, placement or a bit differs."""
    if isinstance(value, Tensor):
        placements = value.placements if isinstance(value, DTensor) else type(value).__name__
        return f"{placements} {value.dtype} {list(value.shape)} {local_bytes({'': value})[''].hex()}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {[told(item) for item in value]}"
    return repr(value)


def tell(state: TrainState) -> dict[str, str]:
    """Return all that a rank sees of its parameters, of the optimizer's state and of the groups, by name."""
    found = {}
    for name, param in state.model.named_parameters():
        state_of = state.optimizer.state.get(param, {})
        found |= {name: told(param), **{f"{key} of {name}": told(value) for key, value in state_of.items()}}
    for number, group in enumerate(state.optimizer.param_groups):
        found |= {f"{key} of group {number}": told(value) for key, value in group.items() if key != "params"}
    return found


def save_once(run: Path, state: TrainState) -> None:
    with Checkpointer(run) as checkpointer:
        checkpointer.save(state)


def go_on_from(run: Path, unbroken: TrainState, broken: TrainState, fresh: TrainState) -> list[dict[str, str]]:
    """Return what three runs came to: one without a break, one that goes on in fresh objects, one that goes back in its own."""
    train(unbroken, LAST)
    train(broken, SAVED)
    save_once(run, broken)
    train(broken, LAST)
    for state in (fresh, broken):
        with Checkpointer(run) as checkpointer:
            assert checkpointer.resume(state) == SAVED
        train(state, LAST)
    return [tell(state) for state in (unbroken, fresh, broken)]


def go_on(run: Path, name: str, sharded: bool, dtype: torch.dtype = torch.float32) -> list[dict[str, str]]:
    nets = [make_net(sharded, seed, dtype) for seed in (0, 0, 1)]
    states = [TrainState(model=net, optimizer=OPTIMIZERS[name](list(net.parameters()))) for net in nets]
    return go_on_from(run, *states)


def go_on_with_a_group_that_joined(run: Path, name: str, sharded: bool) -> list[dict[str, str]]:
    """Groups with settings of their own; `used.bias` joins after the first step. The fresh ones are in another order."""
    states = []
    for seed in (0, 0, 1):
        net = make_net(sharded, seed)
        others = [*net.frozen.parameters(), *net.unused.parameters(), *net.afterwards.parameters()][:: -1 if seed else 1]
        optimizer = OPTIMIZERS[name]([{"params": [net.used.weight]}, {"params": others, "lr": 0.02, "weight_decay": 0.0}])
        states.append(TrainState(model=net, optimizer=optimizer))
        if seed == 0:
            train(states[-1], 1)
        settings = {"lr": 0.05, "weight_decay": 0.3} if seed == 0 else {}
        optimizer.add_param_group({"params": [net.used.bias], **settings})
    return go_on_from(run, *states)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(2) as world:
        yield world


@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - REFUSED_ON_CPU.keys()))
def test_every_optimizer_goes_on_as_if_there_had_been_no_break(name: str, tmp_path: Path) -> None:
    unbroken, resumed, gone_back = go_on(tmp_path, name, sharded=False)
    assert resumed == gone_back == unbroken


@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - REFUSED_SHARDED.keys()))
def test_every_optimizer_that_torch_shards_goes_on_so_with_fsdp2(name: str, world: World, tmp_path: Path) -> None:
    for unbroken, resumed, gone_back in world.run(go_on, tmp_path, name, True):
        assert resumed == gone_back == unbroken


@pytest.mark.parametrize("name", REFUSED_SHARDED)
def test_what_torch_itself_does_not_step(name: str, world: World, tmp_path: Path) -> None:
    with pytest.raises(RankRaised, match=REFUSED_SHARDED[name]):
        world.run(go_on, tmp_path, name, True)
    if name in REFUSED_ON_CPU:
        with pytest.raises(AssertionError, match=REFUSED_ON_CPU[name]):
            go_on(tmp_path, name, sharded=False)


def test_every_optimizer_of_torch_is_tried() -> None:
    of_torch = {name for name in optim.__all__ if isinstance(getattr(optim, name), type)} - {"Optimizer"}
    assert of_torch <= {name.split()[0] for name in OPTIMIZERS}


@pytest.mark.parametrize("name", ["AdamW", "AdamW fused", "SGD momentum", "Homemade"])
def test_groups_keep_their_settings_and_one_that_joined_late_goes_on(name: str, world: World, tmp_path: Path) -> None:
    for unbroken, resumed, gone_back in world.run(go_on_with_a_group_that_joined, tmp_path, name, True):
        assert resumed == gone_back == unbroken
        assert len({resumed[f"lr of group {number}"] for number in range(3)}) == 3


def test_moments_in_float32_of_parameters_in_bfloat16_come_back_in_float32_where_the_parameter_is(
    world: World, tmp_path: Path
) -> None:
    for unbroken, resumed, gone_back in world.run(go_on, tmp_path, "Homemade", True, torch.bfloat16):
        assert resumed == gone_back == unbroken
        assert resumed["used.weight"].startswith("(Shard(dim=0),) torch.bfloat16 [5, 7] ")
        assert resumed["exp_avg of used.weight"].startswith("(Shard(dim=0),) torch.float32 [5, 7] ")


class Scalar(nn.Module):
    """A parameter without dims, whose moments have none either, and which only its own optimizer state tells from `step`."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.wide = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))


def test_scalar_parameters_and_files_that_go_along(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    model = Scalar()
    optimizer = optim.AdamW(model.parameters())
    (model.scale * model.wide).sum().backward()
    optimizer.step()
    files = {"config.json": tmp_path / "config.json"}
    saved = TrainState(model=model, optimizer=optimizer, model_files=files)
    save_once(tmp_path / "run", saved)
    assert (tmp_path / "run/step-00000000/model/config.json").read_text() == "{}"

    other = Scalar()
    resumed = TrainState(model=other, optimizer=optim.AdamW(other.parameters()))
    with Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.resume(resumed)
    assert tell(resumed) == tell(saved)


def test_a_learning_rate_that_is_a_tensor_stays_the_same_object(tmp_path: Path) -> None:
    model = make_net(sharded=False, seed=0)
    state = TrainState(model=model, optimizer=OPTIMIZERS["AdamW, lr as a tensor"](list(model.parameters())))
    save_once(tmp_path, state)
    held = state.optimizer.param_groups[0]["lr"]
    held.fill_(0.7)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.resume(state)
    assert state.optimizer.param_groups[0]["lr"] is held
    assert float(held) == pytest.approx(0.1)


def in_groups(*groups: list[int]) -> TrainState:
    """A net, and an optimizer whose groups have the parameters of these numbers."""
    model = make_net(sharded=False, seed=0)
    params = list(model.parameters())
    return TrainState(model=model, optimizer=optim.SGD([{"params": [params[i] for i in group]} for group in groups]))


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (([0, 1, 2], [3]), "'frozen.weight' is in param group 0, in the step in 1"),
        (([0, 1], [2, 3, 4]), "'unused.weight' is in param group 1, in the step in none"),
    ],
)
def test_groups_of_other_parameters_are_refused(groups: tuple[list[int], ...], words: str, tmp_path: Path) -> None:
    save_once(tmp_path, in_groups([0, 1], [2, 3]))
    with pytest.raises(ResumeError, match=words), Checkpointer(tmp_path) as checkpointer:
        checkpointer.resume(in_groups(*groups))


def test_what_an_optimizer_keeps_under_no_name_is_refused(tmp_path: Path) -> None:
    state = in_groups([0])
    for key in (3, "two::parts"):
        state.optimizer.state[state.model.used.weight] = {key: torch.ones(1)}
        with pytest.raises(SaveError, match=f"the optimizer's state has the key {key!r}; only text without '::' can be saved"):
            save_once(tmp_path, state)
    state.optimizer = optim.SGD(make_net(sharded=False, seed=0).used.parameters())
    with pytest.raises(SaveError, match=r"param group 0 has a parameter of shape \[5, 7\] that the model does not have"):
        save_once(tmp_path, state)
