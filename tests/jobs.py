"""A small training job for the tests: FSDP2, dropout, schedule, random transforms; killed where a test wants it."""

import json
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, get_worker_info

from ckptlab.resume import Checkpointer, ResumableSampler, TrainState, sample_generator
from ckptlab.resume.rng import derive_seed, reseed
from ckptlab.tiers import NodeTier, ObjectStore

NUM_SAMPLES, GLOBAL_BATCH, SEED = 50, 12, 3  # four steps an epoch, two samples left out


class Noisy(Dataset[tuple[int, Tensor]]):
    """Samples with a random transform: from the global generators, or in a worker from the sample's own generator."""

    fingerprint = "noisy"
    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        value = torch.full((7,), index / NUM_SAMPLES)
        if get_worker_info() is None:
            return index, value + torch.rand(7) + random.random() + float(np.random.random())
        return index, value + torch.rand(7, generator=sample_generator(SEED, self.epoch, index))


def make_job(
    workers: int = 0, accumulate: int = 1, *, features: int = 7, dtype: torch.dtype = torch.float32
) -> tuple[TrainState, torch.optim.lr_scheduler.LRScheduler]:
    """Return the job before its first step, and its schedule. Every rank calls it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(features, 13), nn.ReLU(), nn.Dropout(0.1), nn.Linear(13, 3)).to(dtype)
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",)))
    reseed(derive_seed(SEED, dist.get_rank()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=40)
    sampler = ResumableSampler(NUM_SAMPLES, global_batch=GLOBAL_BATCH, seed=SEED, accumulate=accumulate)
    loader = DataLoader(Noisy(), batch_sampler=sampler, num_workers=workers)
    return TrainState(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader), scheduler


def train(
    run: Path,
    until: int,
    workers: int = 0,
    accumulate: int = 1,
    every: int | None = 1,
    kill_at: int | None = None,
    background: Literal["wait", "skip"] | None = None,
    tiers: Sequence[ObjectStore | NodeTier] = (),
    keep_last: int | None = None,
) -> None:
    """Train up to step `until` in all, resuming what is there; rank 1 is killed in the middle of step `kill_at`.

    With tiers the ranks play two nodes.
    """
    if tiers:
        os.environ["CKPTLAB_NODE"] = f"node{2 * dist.get_rank() // dist.get_world_size()}"
    state, scheduler = make_job(workers, accumulate)
    with Checkpointer(run, every=every, keep_last=keep_last, background=background, tiers=tiers) as checkpointer:
        checkpointer.resume(state)
        torch.rand(3), random.random(), np.random.random()  # what a program does between here and its loop may draw
        for window in state.steps(until=until):
            state.optimizer.zero_grad()
            losses = [state.model(batch).square().mean() / accumulate for _, batch in window]
            if state.step == kill_at and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            sum(losses[1:], losses[0]).backward()
            state.optimizer.step()
            scheduler.step()
            record(run, state.step, [index for indices, _ in window for index in indices.tolist()], losses)
            checkpointer.save_if_due(state)
        if every is None:
            checkpointer.save(state)


def record(run: Path, step: int, samples: Sequence[int], losses: Sequence[Tensor]) -> None:
    """Append what this rank trained on, and how it went, to its own file."""
    line = json.dumps({"step": step, "samples": samples, "losses": [float(loss.detach()).hex() for loss in losses]})
    with (run / f"trained-{dist.get_rank()}.jsonl").open("a") as file:
        file.write(line + "\n")


def trained(run: Path, rank: int) -> dict[int, str]:
    """Return the last line of each step of a rank: a step that was trained again after a kill counts as trained again."""
    lines = (run / f"trained-{rank}.jsonl").read_text().splitlines()
    return {json.loads(line)["step"]: line for line in lines}
