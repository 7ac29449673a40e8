"""Make small checkpoints with DeepSpeed itself: `python tests/libraries/deepspeed_fixtures.py FOLDER [NAME ...]`.

Each stands in FOLDER/NAME, beside `expected.safetensors`: the weights as `get_fp32_state_dict_from_zero_checkpoint` gives them,
and the optimizer's moments as `safe_get_full_optimizer_state` does; and `next.safetensors`: the gradients of one further step,
and the weights after it. Needs deepspeed and safetensors, and neither a GPU nor a compiler. Without names, all of `CASES` are
made: those that are committed in `tests/libraries/fixtures/deepspeed`.
"""

import os
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from deepspeed.checkpoint.ds_to_universal import main as to_universal
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_grad, safe_get_full_optimizer_state
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from safetensors.torch import save_file
from torch import nn

STEPS = 3
BF16 = {"bf16": {"enabled": True}}


class Case(NamedTuple):
    """A run of DeepSpeed: its ranks, the stage and settings of ZeRO, and what else stands in its configuration."""

    ranks: int
    zero: Mapping[str, Any]
    rest: Mapping[str, Any] = {}


CASES = {
    "stage1-4ranks-bf16": Case(4, {"stage": 1}, BF16),
    "stage1-2ranks-bf16-sums-fp32": Case(2, {"stage": 1}, {**BF16, "data_types": {"grad_accum_dtype": "fp32"}}),
    "stage2-2ranks-bf16-elastic": Case(2, {"stage": 2, "elastic_checkpoint": True}, BF16),
    "stage2-4ranks-fp32-round-robin": Case(4, {"stage": 2, "round_robin_gradients": True}),
    "stage2-4ranks-bf16-aligned": Case(4, {"stage": 2, "parameter_alignment": True}, BF16),
    "stage3-2ranks-fp32": Case(2, {"stage": 3, "sub_group_size": 20}),
    "stage3-4ranks-bf16": Case(4, {"stage": 3}, BF16),
    "stage2-2ranks-universal": Case(2, {"stage": 2}),
    "stage3-2ranks-universal": Case(2, {"stage": 3, "sub_group_size": 20}, BF16),
}


class Model(nn.Module):
    """A tied weight, a frozen layer, buffers of two kinds, and sizes that no number of ranks divides."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 5)
        self.hidden = nn.Linear(5, 7)
        self.frozen = nn.Linear(7, 5).requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor([0.5]))
        self.register_buffer("shift", torch.linspace(0, 1, 5))
        self.register_buffer("seen", torch.tensor(7))
        self.head = nn.Linear(5, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.frozen(torch.relu(self.hidden(self.embed(tokens)))) * self.scale + self.shift)
        return nn.functional.cross_entropy(self.head(hidden.to(self.head.weight.dtype)).float(), tokens.roll(1))


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    """Two param groups: matrices, and vectors without weight decay."""
    trained = [param for param in model.parameters() if param.requires_grad]
    matrices = [param for param in trained if param.dim() == 2]
    return [
        {"params": matrices, "weight_decay": 0.1},
        {"params": [param for param in trained if param.dim() != 2], "weight_decay": 0.0, "lr": 2e-3},
    ]


def train(case: Case, folder: Path) -> None:
    """Train on this rank and save; rank 0 writes what is expected."""
    rank, model = torch.distributed.get_rank(), seeded_model()
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage3_param_persistence_threshold": 0, **case.zero},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 10}},
        **case.rest,
    }
    own = None if "optimizer" in config else torch.optim.AdamW(groups_of(model), lr=1e-3, betas=(0.9, 0.95))
    engine, *_ = deepspeed.initialize(model=model, optimizer=own, model_parameters=groups_of(model), config=config)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        engine.backward(engine(torch.randint(11, (2,), generator=generator)))
        engine.step()
    if case.zero["stage"] < 3:  # DeepSpeed links the moments after the first group's step, when the second has none yet
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    expected = {**(model.state_dict() if case.zero["stage"] < 3 else {}), **dict(kept_by(model))}
    expected["head.weight"] = expected["embed.weight"]
    engine.save_checkpoint(folder, client_state={"epoch": 2})
    if rank == 0:
        if "data_types" not in case.rest:  # of which zero_to_fp32 says that it is no checkpoint of ZeRO
            expected |= get_fp32_state_dict_from_zero_checkpoint(folder)
        save(expected, folder / "expected.safetensors")
    engine.backward(engine(torch.randint(11, (2,), generator=generator)))
    trained = {name: param for name, param in model.named_parameters() if param.requires_grad}
    gradients = {f"gradient::{name}": safe_get_full_grad(param).float() for name, param in trained.items()}
    engine.step()
    following = gradients | {name: safe_get_full_fp32_param(param) for name, param in trained.items()}
    if rank == 0:
        save(following, folder / "next.safetensors")


def save(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, path)


def seeded_model() -> nn.Module:
    torch.manual_seed(0)
    return Model()


def kept_by(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the weights and moments of the trained parameters. Every rank calls it."""
    for name, param in model.named_parameters():
        if param.requires_grad:
            yield name, safe_get_full_fp32_param(param)
            yield from ((f"{key}::{name}", safe_get_full_optimizer_state(param, key)) for key in ("exp_avg", "exp_avg_sq"))


def make(names: list[str], folder: Path) -> None:
    """Make cases of as many ranks each, one process a rank."""
    for name in names:
        (folder / name).mkdir(parents=True)
    ranks = CASES[names[0]].ranks
    command = [sys.executable, __file__, "--rank", str(folder), *names]
    own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    with TemporaryDirectory() as meeting:  # by a file in it, for a port could be taken by another
        shared = {"MEETING": f"file://{meeting}/ranks", "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
        processes = [subprocess.Popen(command, env=os.environ | shared | mine) for mine in own]
        try:
            if any([process.wait(timeout=90) for process in processes]):  # noqa: C419 - all are waited for
                raise SystemExit(f"{names}: a rank failed")
        finally:
            for process in processes:
                process.kill()
    for name in names:
        finish(name, folder / name)


def finish(name: str, folder: Path) -> None:
    """Leave only the checkpoint; or put the Universal Checkpoint that is made from it in its place."""
    for script in folder.glob("zero_to_*.py"):
        script.unlink()
    if name.endswith("universal"):
        tag = folder / (folder / "latest").read_text()
        options = {"num_extract_workers": 1, "num_merge_workers": 1, "inject_missing_state": True}
        paths = {"input_folder": str(tag), "output_folder": f"{tag}_universal"}
        to_universal(Namespace(keep_temp_folder=False, strict=True, **paths, **options))
        shutil.rmtree(tag)
        (folder / "latest").unlink()


def be_rank(folder: Path, names: list[str]) -> None:
    """Be one rank of several runs, one after another."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled, for a minute
    place = {"init_method": os.environ["MEETING"], "rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False, **place)
    for name in names:
        train(CASES[name], folder / name)
    torch.distributed.destroy_process_group()


def main(arguments: list[str]) -> None:
    """Make the cases that are named, or be a rank of them."""
    if arguments[0] == "--rank":
        return be_rank(Path(arguments[1]), arguments[2:])
    names = arguments[1:] or list(CASES)
    for ranks in sorted({CASES[name].ranks for name in names}):
        make([name for name in names if CASES[name].ranks == ranks], Path(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
