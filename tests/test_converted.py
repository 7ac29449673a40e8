"""A run goes on from a step that `convert` made: with the scheduler of the other system, and from a copy of one of its own."""

import logging
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR
from torch.utils.data import DataLoader

from ckptlab.errors import LoadError, ResumeError, StepError
from ckptlab.interop import convert
from ckptlab.resume import Checkpointer, ResumableSampler, TrainState


def make_job() -> tuple[nn.Module, torch.optim.Optimizer, LRScheduler]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    return model, optimizer, MultiStepLR(optimizer, [2, 4, 6])


def train(model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: LRScheduler) -> None:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()


def saved_by_dcp(folder: Path, job: tuple[nn.Module, torch.optim.Optimizer, LRScheduler]) -> Path:
    model, optimizer, scheduler = job
    model_state, optim_state = get_state_dict(model, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no ranks
        state = {"model": model_state, "optim": optim_state, "lr_scheduler": scheduler.state_dict()}
        dcp.save(state, checkpoint_id=folder, no_dist=True)
    return folder


def resume(run: Path, state: TrainState) -> int:
    with Checkpointer(run, every=100) as checkpointer:
        return checkpointer.resume(state)


def test_a_scheduler_of_another_name_is_refused_and_under_its_own_goes_on_also_from_a_copy_of_a_copy(tmp_path: Path) -> None:
    theirs = make_job()
    for _ in range(3):
        train(*theirs)
    saved_by_dcp(tmp_path / "theirs", theirs)
    convert(tmp_path / "theirs", tmp_path / "once", target_format="ckptlab")
    convert(tmp_path / "once", tmp_path / "twice", target_format="ckptlab")

    ours = model, optimizer, scheduler = make_job()
    with pytest.raises(ResumeError, match=r"'scheduler' of TrainState .* write TrainState\(lr_scheduler=\.\.\.\)"):
        resume(tmp_path / "twice", TrainState(model=model, optimizer=optimizer, scheduler=scheduler))
    loader = DataLoader(list(range(8)), batch_sampler=ResumableSampler(8, global_batch=4, seed=0))
    state = TrainState(model=model, optimizer=optimizer, loader=loader, lr_scheduler=scheduler)
    assert resume(tmp_path / "twice", state) == 3
    for _ in range(4):
        train(*ours)
        train(*theirs)
    assert torch.equal(model.weight, theirs[0].weight)
    assert scheduler.get_last_lr() == theirs[2].get_last_lr()


def test_a_copy_of_a_runs_step_goes_on_at_the_same_sample_with_new_random_numbers(tmp_path: Path, caplog) -> None:
    def make_state() -> TrainState:
        model, optimizer, scheduler = make_job()
        loader = DataLoader(list(range(8)), batch_sampler=ResumableSampler(8, global_batch=2, seed=0))
        return TrainState(model=model, optimizer=optimizer, loader=loader, scheduler=scheduler)

    state = make_state()
    with Checkpointer(tmp_path / "run", every=100, files="by_rank") as checkpointer:
        checkpointer.resume(state)
        for _ in state.steps(until=3):
            train(state.model, state.optimizer, state.stateful["scheduler"])
        checkpointer.save(state)
    convert(tmp_path / "run", tmp_path / "copy", target_format="ckptlab")
    other = make_state()
    with caplog.at_level(logging.WARNING, "ckptlab"):
        assert resume(tmp_path / "copy", other) == 3
    assert (other.epoch, other.position) == (state.epoch, state.position) == (0, 6)
    (told,) = caplog.messages
    assert told.endswith("it was copied without what belongs to single ranks: random numbers are new")


def test_a_source_that_is_saved_anew_while_it_is_read_gives_no_step(tmp_path: Path) -> None:
    theirs = make_job()
    train(*theirs)
    saved_by_dcp(tmp_path / "theirs", theirs)

    def save_again(done: int, total: int) -> None:
        if done < total:
            saved_by_dcp(tmp_path / "theirs", theirs)

    with pytest.raises(LoadError, match="changed while it was read"):
        convert(tmp_path / "theirs", tmp_path / "run", target_format="ckptlab", on_progress=save_again)
    assert not (tmp_path / "run").exists()


def test_another_optimizer_than_the_source_had_is_told_by_its_settings(tmp_path: Path) -> None:
    theirs = make_job()
    train(*theirs)
    convert(saved_by_dcp(tmp_path / "theirs", theirs), tmp_path / "run", target_format="ckptlab")
    model = make_job()[0]
    for other in (torch.optim.RAdam(model.parameters()), torch.optim.SGD(model.parameters(), momentum=0.9)):
        with pytest.raises(ResumeError, match=f"not one of {type(other).__name__}"):
            resume(tmp_path / "run", TrainState(model=model, optimizer=other))


def test_weights_alone_do_not_become_a_step_of_a_run_that_has_some(tmp_path: Path) -> None:
    theirs = make_job()
    train(*theirs)
    convert(saved_by_dcp(tmp_path / "theirs", theirs), tmp_path / "run", target_format="ckptlab")
    convert(tmp_path / "run", tmp_path / "weights", target_format="huggingface")
    with pytest.raises(StepError, match="of weights alone it would not go on"):
        convert(tmp_path / "weights", tmp_path / "run", target_format="ckptlab", step=9)
