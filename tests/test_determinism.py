"""Promise 5: a run that is killed and resumed is bitwise the run that was never broken."""

import json
from pathlib import Path

import pytest
import torch
from jobs import GLOBAL_BATCH, NUM_SAMPLES, train, trained
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader

from ckptlab.errors import RankLost, RankRaised
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, ResumableSampler, TrainState
from ckptlab.resume.sampler import order
from ckptlab.steps import compare, list_steps

STEPS_IN_EPOCH = NUM_SAMPLES // GLOBAL_BATCH
LAST = 2 * STEPS_IN_EPOCH + 2
KILLS = [2, STEPS_IN_EPOCH // 2 + 1, STEPS_IN_EPOCH, STEPS_IN_EPOCH + 1, STEPS_IN_EPOCH + 2]
"""Killed in the step after the first, a middle, the last but one and the last batch of an epoch, and again in the next."""


@pytest.mark.parametrize(("workers", "accumulate"), [(0, 1), (2, 1), (0, 3), (2, 3)])
def test_a_run_killed_again_and_again_is_bitwise_the_run_that_was_never_broken(
    workers: int, accumulate: int, tmp_path: Path
) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    with World(2) as world:
        world.run(train, unbroken, LAST, workers, accumulate)
        for step in KILLS:
            with pytest.raises(RankLost):
                world.run(train, broken, LAST, workers, accumulate, kill_at=step)
            world.restart()
        world.run(train, broken, LAST, workers, accumulate)
    assert [step.number for step in list_steps(broken)] == list(range(1, LAST + 1))
    for a, b in zip(list_steps(unbroken), list_steps(broken), strict=True):
        assert list(compare(a, b)) == []
    lines = [trained(broken, rank) for rank in range(2)]
    assert lines == [trained(unbroken, rank) for rank in range(2)]
    first, second = (epoch_samples(lines, range(e * STEPS_IN_EPOCH + 1, (e + 1) * STEPS_IN_EPOCH + 1)) for e in (0, 1))
    assert len(set(first)) == len(first) == STEPS_IN_EPOCH * GLOBAL_BATCH, "a sample was trained on twice, or left out"
    assert first != second, "both epochs had the same order"


def epoch_samples(lines: list[dict[int, str]], steps: range) -> list[int]:
    return [sample for step in steps for rank in lines for sample in json.loads(rank[step])["samples"]]


def train_on_two_axes(run: Path, until: int) -> list[list[int]]:
    """Train an FSDP2 over tensor parallel model, and return the samples of each step on this rank."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sampler = ResumableSampler(24, global_batch=4, seed=0, data_mesh=mesh["data"])
    state = TrainState(model=model, optimizer=optimizer, loader=DataLoader(torch.arange(24), batch_sampler=sampler))
    seen: list[list[int]] = []
    with Checkpointer(run, every=1, keep_last=None) as checkpointer:
        checkpointer.resume(state)
        for (batch,) in state.steps(until=until):
            model(torch.stack([batch.sin(), batch.cos(), batch / 24, batch % 3], 1)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(batch.tolist())
            checkpointer.save_if_due(state)
    return seen


def deal_out_over_a_whole_mesh(flattened: bool) -> list[int]:
    """Return this rank's first samples, dealt out over both axes of a mesh, as under HSDP."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    data_mesh = mesh["replicate", "shard"]._flatten() if flattened else mesh
    return next(iter(ResumableSampler(24, global_batch=8, seed=0, data_mesh=data_mesh)))


def test_ranks_that_share_layers_train_on_the_same_samples_and_resume_exactly(tmp_path: Path) -> None:
    with World(4) as world:
        with pytest.raises(RankRaised, match=r"data_mesh has 2 axes; .* mesh\[.data.\]\. .* flatten these first"):
            world.run(deal_out_over_a_whole_mesh, flattened=False)
        dealt_out = world.run(deal_out_over_a_whole_mesh, flattened=True)
        assert [sample for samples in dealt_out for sample in samples] == order(24, seed=0, epoch=0)[:8].tolist()
        unbroken = world.run(train_on_two_axes, tmp_path / "unbroken", 5)
        world.run(train_on_two_axes, tmp_path / "broken", 2)
        world.restart()
        rest = world.run(train_on_two_axes, tmp_path / "broken", 5)
    assert unbroken[0] == unbroken[1]
    assert unbroken[2] == unbroken[3]
    assert [by_step[2:] for by_step in unbroken] == rest
    dealt = [sample for one, other in zip(unbroken[0], unbroken[2], strict=True) for sample in one + other]
    assert dealt == order(24, seed=0, epoch=0)[: 4 * 5].tolist()
    pairs = zip(list_steps(tmp_path / "unbroken"), list_steps(tmp_path / "broken"), strict=True)
    assert [list(compare(one, other)) for one, other in pairs] == [[]] * 5
