"""States for the tests, made on real ranks: the same values from any topology, so that what differs is only who holds what."""

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ckptlab.checkpoint import load, save
from ckptlab.resume import TrainState

TOPOLOGIES = [
    *[("replicated", n) for n in (1, 2, 3, 4, 8)],
    *[("fsdp", n) for n in (1, 2, 3, 4, 8)],
    ("replicated x fsdp", 4),
    ("replicated x fsdp", 8),
    ("tensor parallel", 2),
    ("tensor parallel", 4),
    ("fsdp x tensor parallel", 4),
    ("fsdp x tensor parallel", 8),
]


class Half(nn.Module):
    """A part in bfloat16, which FSDP2 shards on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(8, 4096, bias=False, dtype=torch.bfloat16)


class Net(nn.Module):
    """Uneven rows, fewer rows than ranks, a tie, buffers that are 0-dim and empty, and a tensor of more than one block."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.few = nn.Linear(6, 3)
        self.low = Half()
        self.blocks = nn.Linear(1030, 1025, bias=False)  # 4.2 MB: two blocks of a file
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("count", torch.tensor(7))
        self.register_buffer("nothing", torch.empty(0, 3))


def values(name: str, like: Tensor, seed: int) -> Tensor:
    """Return the full tensor that a name stands for, zeros for seed 0: the same on every rank of every topology."""
    generator = torch.Generator().manual_seed(seed * 1000 + sum(name.encode()))
    return (torch.randn(like.shape, generator=generator) * (seed != 0)).to(like.dtype)


def sharded(kind: str, seed: int, prefix: str = "") -> Net:
    """Return a model whose parameters are what prefix and name stand for, sharded by torch."""
    model, world_size = Net(), dist.get_world_size()
    with torch.no_grad():
        for name, param in model.named_parameters():
            param.copy_(values(prefix + name, param, seed))
    if kind == "fsdp":
        mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("fsdp",))
    elif kind == "replicated x fsdp":
        mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("replicated", "fsdp"))
    elif kind.endswith("tensor parallel"):
        num_shards = 2 if kind.startswith("fsdp") else 1
        both = init_device_mesh("cpu", (num_shards, world_size // num_shards), mesh_dim_names=("fsdp", "tensor"))
        cuts = {"few": ColwiseParallel(), "blocks": ColwiseParallel(), "low.wide": RowwiseParallel()}
        parallelize_module(model, both["tensor"], cuts)
        mesh = both["fsdp"]
    if "fsdp" in kind:
        fully_shard(model.low, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def make_state(kind: str, seed: int) -> TrainState:
    """Return a sharded model with an optimizer state; `seed` 0 is all zeros, without one. Every rank calls it."""
    model = sharded(kind, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.125)
    for key in ("exp_avg", "exp_avg_sq") if seed else ():
        moments = dict(sharded(kind, seed, f"{key}::").named_parameters())
        for name, param in model.named_parameters():
            optimizer.state[param][key] = moments[name].detach()
            optimizer.state[param]["step"] = torch.tensor(float(seed))
    state = TrainState(model=model, optimizer=optimizer)
    state.step = seed
    return state


def local_bytes(tensors: Mapping[str, Tensor]) -> dict[str, bytes]:
    """Return this rank's part of each tensor as bytes."""
    local = {name: t.to_local() if isinstance(t, DTensor) else t for name, t in tensors.items()}
    return {name: t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for name, t in local.items()}


def save_state(kind: str, run: Path, seed: int) -> None:
    """Save the state of a seed as the step of that number."""
    save(run, seed, make_state(kind, seed).contents())


def load_state(kind: str, step: Path, seed: int) -> list[str]:
    """Load a step into zeros, and return the names that are not bitwise what the seed stands for."""
    empty, expected = make_state(kind, 0), make_state(kind, seed).contents()
    loaded = load(step, empty.wanted)
    empty.accept(loaded)
    found = empty.contents()
    differing = []
    for got, want in ((found.model, expected.model), (found.optim, expected.optim)):
        a, b = local_bytes(got), local_bytes(want)
        differing += [name for name in a.keys() | b.keys() if a.get(name) != b.get(name)]
    if empty.step != seed or empty.optimizer.param_groups[0]["lr"] != 0.125:
        differing.append("state")
    return differing
