"""Names that only some ranks hold, buffers that differ between ranks, and the kinds of tensor that are refused by name."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ckptlab.checkpoint import Contents, load, save
from ckptlab.errors import RankRaised
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState, load_weights


def stage(rank: int) -> dict[str, torch.Tensor]:
    """A stage of a pipeline, and something that both stages have."""
    return {f"stage{rank}.weight": torch.full((300, 7), rank + 1.0), "shared": torch.arange(5.0)}


def save_stage(run: Path) -> None:
    save(run, 1, Contents(model=stage(dist.get_rank()), aliases={f"also{dist.get_rank()}": "shared"}))


def load_stages(step: Path, wanted: list[list[int]]) -> bool:
    """Load the stages that this rank wants; whether they are what was saved."""
    expected = {name: tensor for rank in wanted[dist.get_rank()] for name, tensor in stage(rank).items()}
    filled = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    load(step, lambda manifest, state: Contents(model=filled))
    return all(torch.equal(filled[name], tensor) for name, tensor in expected.items())


def test_ranks_that_hold_different_names_save_one_step_and_any_ranks_load_it(tmp_path: Path) -> None:
    with World(2) as world:
        world.run(save_stage, tmp_path)
        step = tmp_path / "step-00000001"
        found = load_file(step / "model/model-00001-of-00001.safetensors")
        assert {name: tensor.tolist() for name, tensor in found.items()} == {
            name: tensor.tolist() for rank in range(2) for name, tensor in stage(rank).items()
        }
        assert world.run(load_stages, step, [[0], [1]]) == [True, True]
        assert world.run(load_stages, step, [[1], [0, 1]]) == [True, True]
        with pytest.raises(RankRaised, match=r"'stage1.weight' is in the step and not wanted"):
            world.run(load_stages, step, [[0], [0]])


def make_pipeline(rank: int) -> TrainState:
    """A stage of its own on each rank, in two param groups, and an optimizer whose state has plain values too."""
    torch.manual_seed(rank)
    model = nn.ModuleDict({f"stage{rank}": nn.Linear(3, 3 + rank)})
    groups = [{"params": [p for p in model.parameters() if p.ndim == dim], "lr": 0.1 * dim} for dim in (1, 2)]
    return TrainState(model=model, optimizer=torch.optim.SGD(groups, lr=0.1, momentum=0.9))


def train_pipeline(run: Path, until: int) -> dict[str, Any]:
    """Go on to step `until`; each rank's parameters are those of its stage."""
    state = make_pipeline(dist.get_rank())
    with Checkpointer(run, every=2) as checkpointer:
        checkpointer.resume(state)
        while state.step < until:
            for param in state.model.parameters():
                param.grad = param.detach() + state.step
            state.optimizer.step()
            for param in state.model.parameters():
                state.optimizer.state[param]["seen"] = state.step
            state.step += 1
            checkpointer.save_if_due(state)
    values = [state.optimizer.state[param]["seen"] for param in state.model.parameters()]
    return {"values": values, **{name: tensor.tolist() for name, tensor in state.model.state_dict().items()}}


def resume_all_stages(run: Path, moved: bool) -> float:
    """Resume both stages in one process; give a learning rate of the second group."""
    model, optimizers = nn.ModuleDict(), []
    for rank in range(2):
        stage = make_pipeline(rank)
        model.update(stage.model.items())
        optimizers.append(stage.optimizer)
    groups = [
        {"params": [*first["params"], *second["params"]]}
        for first, second in zip(*(o.param_groups for o in optimizers), strict=True)
    ]
    if moved:
        groups[1]["params"].append(groups[0]["params"].pop())
    state = TrainState(model=model, optimizer=torch.optim.SGD(groups, lr=0.5, momentum=0.9))
    with Checkpointer(run) as checkpointer:
        checkpointer.resume(state)
    assert [state.optimizer.state[param]["seen"] for param in model.parameters()] == [3] * 4
    return float(state.optimizer.param_groups[1]["lr"])


def test_stages_of_a_pipeline_are_one_train_state_and_go_on_exactly_and_in_one_process(tmp_path: Path) -> None:
    with World(2) as world:
        expected = world.run(train_pipeline, tmp_path / "unbroken", 6)
        world.run(train_pipeline, tmp_path / "broken", 4)
        assert world.run(train_pipeline, tmp_path / "broken", 6) == expected
        world.run(train_pipeline, tmp_path / "once", 4)
    with World(1) as world:
        assert world.run(resume_all_stages, tmp_path / "once", False) == [0.2]
        with pytest.raises(RankRaised, match=r"'stage1.bias' is in param group 1, in the step in 0"):
            world.run(resume_all_stages, tmp_path / "once", True)


def sharded_unevenly() -> nn.Module:
    """FSDP2 over tensor parallel where neither divides the 7 rows."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("fsdp", "tp"))
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 5))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    return fully_shard(model, mesh=mesh["fsdp"])


def save_unevenly(run: Path) -> bool:
    """Save such a model, load it into another one, and say whether torch gathers the same from both."""
    model, other = sharded_unevenly(), sharded_unevenly()
    step = save(run, 1, Contents(model=dict(model.named_parameters())))
    with torch.no_grad():
        for param in other.parameters():
            param.zero_()
    load_weights(step, other)
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    same = [torch.equal(one.full_tensor(), two.full_tensor()) for one, two in pairs]  # every rank gathers every tensor
    return all(same)


def test_fsdp_over_tensor_parallel_deals_rows_out_as_torch_does_where_nothing_divides(tmp_path: Path) -> None:
    with World(6) as world:
        assert world.run(save_unevenly, tmp_path) == [True] * 6
    torch.manual_seed(0)
    expected = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 5)).state_dict()
    found = load_file(tmp_path / "step-00000001/model/model-00001-of-00001.safetensors")
    assert {name: tensor.tolist() for name, tensor in found.items()} == {n: t.tolist() for n, t in expected.items()}


class Normed(nn.Module):
    """BatchNorm, whose running statistics are each rank's own, and a part that only rank 0 uses."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.only_on_rank_0 = nn.Linear(4, 4)


def make_normed() -> TrainState:
    torch.manual_seed(0)
    model = Normed()
    return TrainState(model=model, optimizer=torch.optim.AdamW(model.parameters(), weight_decay=0.0))


def tell(state: TrainState) -> dict[str, Any]:
    """What a rank can see of its state: its own statistics, and which parameters have an optimizer state."""
    model, optimizer = state.model, state.optimizer
    stateful = sorted(name for name, param in model.named_parameters() if param in optimizer.state)
    return {"mean": model.norm.running_mean.tolist(), "seen": int(model.norm.num_batches_tracked), "stateful": stateful}


def train_and_save(run: Path) -> dict[str, Any]:
    """One step, as data parallel would do it: equal gradients, but for a part that only rank 0 uses."""
    state, rank = make_normed(), dist.get_rank()
    used = state.model.norm(torch.rand(3, 4, generator=torch.Generator().manual_seed(rank)))
    for name, param in state.model.named_parameters():
        if rank == 0 or not name.startswith("only"):
            param.grad = torch.zeros_like(param)
    assert used.requires_grad
    state.optimizer.step()
    state.step = 1
    with Checkpointer(run) as checkpointer:
        checkpointer.save(state)
    return tell(state)


def resume_and_tell(run: Path) -> dict[str, Any]:
    state = make_normed()
    with Checkpointer(run) as checkpointer:
        assert checkpointer.resume(state) == 1
    return tell(state)


def test_each_rank_gets_its_own_buffers_and_only_the_optimizer_state_that_it_had(tmp_path: Path) -> None:
    with World(3) as world:
        told = world.run(train_and_save, tmp_path)
        assert told[0]["mean"] != told[1]["mean"] != told[2]["mean"]
        assert told[0]["stateful"] != told[1]["stateful"] == told[2]["stateful"]
        assert world.run(resume_and_tell, tmp_path) == told
    with World(2) as world:
        resumed = world.run(resume_and_tell, tmp_path)
    assert [answer["mean"] for answer in resumed] == [told[0]["mean"]] * 2, "at another world size all take rank 0's"


class Odd(torch.Tensor):
    """A subclass: what it needs to come back is not in its bytes."""


class WithExtraState(nn.Module):
    """A module whose state dict has a member that is no tensor."""

    def get_extra_state(self) -> object:
        return {"scale": 1}

    def set_extra_state(self, state: object) -> None:
        """Take nothing."""


def save_odd(run: Path, what: str) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    odd = {
        "partial": lambda: DTensor.from_local(torch.ones(2), mesh, [Partial()]),
        "descending": lambda: distribute_tensor(torch.ones(4), DeviceMesh("cpu", [1, 0]), [Shard(0)]),
        "expanded": lambda: torch.ones(1).expand(3),
        "subclass": lambda: torch.ones(2).as_subclass(Odd),
        "meta": lambda: torch.ones(2, device="meta"),
        "conjugate": lambda: torch.ones(2, dtype=torch.complex64).conj(),
        "overlapping": lambda: torch.ones(4).as_strided((3, 2), (1, 1)),
        "cut": lambda: DTensor.from_local(torch.ones(3 + 2 * dist.get_rank()), mesh, [Shard(0)], shape=(8,), stride=(1,)),
        "sparse": lambda: torch.eye(3).to_sparse(),
        "complex128": lambda: torch.ones(2, dtype=torch.complex128),
        "extra": lambda: TrainState(model=WithExtraState(), optimizer=torch.optim.SGD([torch.ones(1)])).contents(),
    }[what]()
    save(run, 1, odd if isinstance(odd, Contents) else Contents(model={"layer.odd": odd}))


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("partial", "'layer.odd' is placed as P"),
        ("descending", "'layer.odd' is on a mesh whose ranks do not ascend, [1, 0]"),
        ("expanded", "'layer.odd' is expanded"),
        ("subclass", "'layer.odd' is a Odd"),
        ("meta", "'layer.odd' is on the meta device"),
        ("conjugate", "'layer.odd' is a lazy conjugate"),
        ("overlapping", "'layer.odd' is expanded"),
        ("cut", "'layer.odd' is placed as (Shard(dim=0),), by which no rank of this mesh holds [3] here of [8]"),
        ("sparse", "'layer.odd' is torch.float32, torch.sparse_coo"),
        ("complex128", "'layer.odd' is torch.complex128"),
        ("extra", "'_extra_state' in the model's state dict is no parameter or buffer"),
    ],
)
def test_what_cannot_be_saved_is_refused_by_name(what: str, words: str, tmp_path: Path) -> None:
    with World(2) as world, pytest.raises(RankRaised) as caught:
        world.run(save_odd, tmp_path, what)
    assert words in str(caught.value)
    assert not list(tmp_path.glob("*step*"))


def save_on_a_mesh_that_is_given_up(run: Path) -> bool:
    """Save a tensor on a mesh, let both go, and return whether the mesh is still there."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    save(run, 1, Contents(model={"weight": distribute_tensor(torch.ones(4), mesh, [Shard(0)])}))
    found = weakref.ref(mesh)
    del mesh
    dist.destroy_process_group()
    gc.collect()
    return found() is not None


def test_a_save_holds_no_mesh_whose_groups_would_keep_their_threads_and_files(tmp_path: Path) -> None:
    with World(2) as world:
        assert world.run(save_on_a_mesh_that_is_given_up, tmp_path) == [False, False]
