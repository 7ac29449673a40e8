"""Training jobs that save and load with torch's own distributed checkpoint, on real ranks; what they hold, as sums of bytes."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader

from ckptlab.resume import Checkpointer, ResumableSampler, TrainState

Job = tuple[nn.Module, Optimizer]


class Net(nn.Module):
    """Uneven rows, fewer rows than ranks, a tie, a frozen parameter, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6, bias=False)
        self.norm = nn.LayerNorm(6)
        self.few = nn.Linear(6, 3)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.norm.weight.requires_grad_(False)
        self.register_buffer("scale", torch.tensor(1.5))

    def forward(self, numbers: Tensor) -> Tensor:
        hidden = self.norm(self.down(F.relu(self.up(self.embed(numbers)))))
        out: Tensor = self.head(hidden) * self.scale + self.few(hidden).sum()
        return out


def make_job(kind: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> Job:
    """Return a sharded model with an optimizer of two param groups. Every rank calls it."""
    torch.manual_seed(seed)
    model, world_size = Net().to(dtype), dist.get_world_size()
    tensor_ranks = 1 if kind == "fsdp" else 2
    both = init_device_mesh("cpu", (world_size // tensor_ranks, tensor_ranks), mesh_dim_names=("fsdp", "tensor"))
    if tensor_ranks > 1:
        parallelize_module(model, both["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    if "fsdp" in kind:
        fully_shard(model, mesh=both["fsdp"])
    matrices = [param for param in model.parameters() if param.dim() > 1]
    vectors = [param for param in model.parameters() if param.dim() == 1]
    return model, AdamW([{"params": matrices}, {"params": vectors, "weight_decay": 0.0}], lr=0.01)


def train(job: Job, step: int) -> None:
    """Do one step on the batch of its number, the same on all ranks."""
    model, optimizer = job
    numbers = torch.randint(11, (4, 5), generator=torch.Generator().manual_seed(step))
    F.cross_entropy(model(numbers).float().flatten(0, 1), numbers.roll(1).flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


def trained_and_saved(kind: str, dtype_name: str, folder: Path) -> dict[str, str]:
    """Train three steps, save with `dcp.save`, and return the sums of what was saved."""
    job = make_job(kind, dtype=getattr(torch, dtype_name))
    for step in (1, 2, 3):
        train(job, step)
    model, optim = get_state_dict(*job)
    dcp.save({"model": model, "optim": optim, "sampler": {"epoch": 1, "seen": [3, 4]}}, checkpoint_id=folder)
    return sums(job)


def loaded_by_dcp(kind: str, dtype_name: str, folder: Path, steps: int = 0) -> dict[str, str]:
    """Load with `dcp.load` into a job that holds other values, train some steps more, and return the sums of what it holds."""
    job = make_job(kind, seed=1, dtype=getattr(torch, dtype_name))
    model, optim = get_state_dict(*job)
    dcp.load({"model": model, "optim": optim}, checkpoint_id=folder)
    set_state_dict(*job, model_state_dict=model, optim_state_dict=optim)
    return after(job, steps)


def resumed_by_ckptlab(kind: str, dtype_name: str, run: Path, steps: int) -> dict[str, str]:
    """The same with a run of ckptlab, whose newest step knows neither of the data nor of a scaler."""
    model, optimizer = job = make_job(kind, seed=1, dtype=getattr(torch, dtype_name))
    loader = DataLoader(list(range(8)), batch_sampler=ResumableSampler(8, global_batch=4, seed=0))
    state = TrainState(model=model, optimizer=optimizer, loader=loader, scaler=GradScaler("cpu"))
    with Checkpointer(run, every=100) as checkpointer:
        resumed = checkpointer.resume(state)
    assert (resumed, state.step, state.epoch, state.position) == (3, 3, 0, 0)
    return after(job, steps)


def after(job: Job, steps: int) -> dict[str, str]:
    for step in range(4, 4 + steps):
        train(job, step)
    return sums(job)


def sums(job: Job) -> dict[str, str]:
    """Return the sum of each whole tensor's bytes, by section and name as ckptlab has them; on rank 0, elsewhere nothing."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model, optim = get_state_dict(*job, options=options)
    return sums_of({"model": model, "optim": optim}) if dist.get_rank() == 0 else {}


def sums_of(whole: Mapping[str, Any]) -> dict[str, str]:
    """Return the sums of a state dict with whole tensors, as `get_state_dict` nests it, and its param groups as text."""
    found = {f"model {name}": sum_of(tensor) for name, tensor in whole["model"].items()}
    for fqn, state in whole["optim"]["state"].items():
        found |= {f"optim {key}::{fqn}": sum_of(tensor) for key, tensor in state.items()}
    for group in whole["optim"]["param_groups"]:
        settings = {key: value for key, value in group.items() if key != "params"}
        found |= {f"group of {name}": repr(sorted(settings.items())) for name in group["params"]}
    return found


def sum_of(tensor: Tensor) -> str:
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{tensor.dtype} {list(tensor.shape)} {hashlib.sha256(data).hexdigest()[:16]}"
