"""What a resume refuses, and that a refusal changes nothing; what it passes over; what another world size keeps."""

import json
import logging
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from jobs import Noisy, make_job, train
from states import local_bytes, make_state
from torch.utils.data import DataLoader, Dataset

from ckptlab.checkpoint import Contents, load, save
from ckptlab.checkpoint.phases import PHASES
from ckptlab.errors import CkptlabError, CorruptError, LoadError, RankRaised, SaveError, StepError
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, ResumableSampler, TrainState
from ckptlab.steps import list_steps, verify
from ckptlab.steps.steps import read_step


def tree(run: Path) -> dict[str, bytes]:
    """Every file of a run but the lock, which says who had it last."""
    return {p.relative_to(run).as_posix(): p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != ".lock"}


def resume_something_else(run: Path, what: str) -> tuple[str, str, bool]:
    """Resume a job that is not the one that was saved; return the error, and whether the model is as it was."""
    if what == "data":
        Noisy.fingerprint = "other"
    state, _ = make_job(features=8 if what == "model" else 7, dtype=torch.bfloat16 if what == "dtype" else torch.float32)
    if what == "seed":
        state.loader.batch_sampler.seed += 1
    if what == "groups":
        first = state.optimizer.param_groups[0]
        state.optimizer.param_groups.append({**first, "params": [first["params"].pop()]})
    if what == "optimizer":
        optimizer = torch.optim.SGD(state.model.parameters())
        state = TrainState(model=state.model, optimizer=optimizer, loader=state.loader, **state.stateful)
    if what == "schedule":
        state = TrainState(model=state.model, optimizer=state.optimizer, loader=state.loader)
    before = local_bytes(state.contents().model)
    try:
        with Checkpointer(run) as checkpointer:
            checkpointer.resume(state)
    except CkptlabError as error:
        unchanged = before == local_bytes(state.contents().model) and state.step == 0 and not state.optimizer.state
        return type(error).__name__, str(error), unchanged
    return "", "", False


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("model", "LoadError", "'0.weight' is F32 [13, 7] in the step, wanted F32 [13, 8]"),
        ("dtype", "LoadError", "wanted BF16"),
        ("data", "ResumeError", "fingerprint: 'noisy' and 'other'"),
        ("seed", "ResumeError", "data.seed: 3 and 4"),
        ("optimizer", "ResumeError", "the step is of the optimizer AdamW, this run has SGD"),
        ("groups", "ResumeError", "the optimizer has 2 param groups, the step has 1"),
        ("schedule", "ResumeError", "['scheduler']"),
    ],
)
def test_another_run_is_refused_in_words_and_nothing_changes(what: str, kind: str, words: str, tmp_path: Path) -> None:
    with World(2) as world:
        world.run(train, tmp_path, 2)
        before = tree(tmp_path)
        told = world.run(resume_something_else, tmp_path, what)
    assert told[0] == told[1]
    assert told[0][0] == kind
    assert words in told[0][1]
    assert told[0][2], "the model or the optimizer changed"
    assert tree(tmp_path) == before


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0b1000
    path.write_bytes(data)


def resume_and_tell(run: Path) -> tuple[str, int, bool | None]:
    state, _ = make_job()
    with Checkpointer(run) as checkpointer:
        try:
            return "", checkpointer.resume(state), None
        except LoadError as error:
            return f"{type(error).__name__}: {error}", 0, error.state_changed


def damage_optimizer(step: Path) -> None:
    flip(step / "optim/optim-00001-of-00001.safetensors", -1)


def damage_model(step: Path) -> None:
    flip(step / "model/model-00001-of-00001.safetensors", 4200)


def damage_rank_file(step: Path) -> None:
    flip(step / "ranks/rank-00001.safetensors", -1)


def damage_rank_header(step: Path) -> None:
    flip(step / "ranks/rank-00001.safetensors", 9)  # a quote of the header: no JSON any more


def damage_state(step: Path) -> None:
    flip(step / "state.json", 20)


def lose_a_file(step: Path) -> None:
    (step / "ranks/rank-00001.json").unlink()


def lose_the_manifest(step: Path) -> None:
    (step / "manifest.json").unlink()


def unreadable(step: Path) -> None:
    """Put a FIFO in the place of a file: it has no bytes to give, and must not be waited for."""
    os.remove(step / "model/model-00001-of-00001.safetensors")
    os.mkfifo(step / "model/model-00001-of-00001.safetensors")


DAMAGES = [
    unreadable,
    damage_optimizer,
    damage_model,
    damage_rank_file,
    damage_rank_header,
    damage_state,
    lose_a_file,
    lose_the_manifest,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_step_is_passed_over_by_all_ranks_and_set_aside(damage: Callable[[Path], None], tmp_path: Path) -> None:
    with World(2) as world:
        world.run(train, tmp_path, 3)
        damage(tmp_path / "step-00000003")
        assert world.run(resume_and_tell, tmp_path) == [("", 2, None)] * 2
        assert [step.number for step in list_steps(tmp_path)] == [1, 2]
        assert len(list(tmp_path.glob(".bad-step-00000003-*"))) == 1
        world.run(train, tmp_path, 3)
    assert [step.number for step in list_steps(tmp_path) if step.whole] == [1, 2, 3]


def test_when_every_step_is_damaged_the_error_says_so_and_that_the_state_may_have_changed(tmp_path: Path) -> None:
    with World(2) as world:
        world.run(train, tmp_path, 2)
        damage_optimizer(tmp_path / "step-00000002")
        lose_the_manifest(tmp_path / "step-00000001")
        before = tree(tmp_path)
        (told, *_), again = world.run(resume_and_tell, tmp_path), tree(tmp_path)
    assert told[2] is True
    assert "no step of" in told[0]
    assert "step 1: no manifest.json" in told[0]
    assert "optim/optim-00001-of-00001.safetensors" in told[0]
    assert again == before


def load_damaged(step: Path) -> tuple[str, str, bool, bool]:
    state, _ = make_job()
    before = local_bytes(state.contents().model)
    try:
        load(step, state.wanted)
    except CorruptError as error:
        return type(error).__name__, str(error), error.state_changed, before == local_bytes(state.contents().model)
    return "", "", False, False


def test_load_finds_a_flipped_bit_before_it_changes_anything_and_names_the_tensors(tmp_path: Path) -> None:
    with World(2) as world:
        world.run(train, tmp_path, 1)
        damage_model(tmp_path / "step-00000001")
        told = world.run(load_damaged, tmp_path / "step-00000001")
    assert told[0] == told[1]
    kind, message, state_changed, unchanged = told[0]
    assert (kind, state_changed, unchanged) == ("CorruptError", False, True)
    assert "model/model-00001-of-00001.safetensors bytes 0-" in message
    assert "0.weight" in message


def hear_of_another_world(run: Path) -> tuple[list[str], float, float]:
    """Resume; return what is logged, and what the next random numbers are."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("ckptlab").addHandler(handler)
    state, _ = make_job()
    with Checkpointer(run) as checkpointer:
        checkpointer.resume(state)
    logging.getLogger("ckptlab").removeHandler(handler)
    return heard, float(torch.rand(1)), random.random()


def test_a_resume_at_another_world_size_says_what_is_lost_and_gives_each_rank_its_own_random_numbers(tmp_path: Path) -> None:
    with World(2) as world:
        world.run(train, tmp_path, 2)
        assert world.run(hear_of_another_world, tmp_path)[0][0] == []
    with World(3) as world:
        told = world.run(hear_of_another_world, tmp_path)
        again = world.run(hear_of_another_world, tmp_path)
    assert "world_size was 2, is 3" in told[0][0][0]
    assert len({numbers for _, *drawn in told for numbers in drawn}) == 6, "two ranks draw the same numbers"
    assert [drawn for _, *drawn in told] == [drawn for _, *drawn in again]


def save_three(run: Path) -> None:
    state, _ = make_job()
    with Checkpointer(run, keep_last=2) as checkpointer:
        for step in (1, 2, 3):
            state.step = step
            checkpointer.save(state)
            if step == 1:
                (run / "step-00000002").mkdir(exist_ok=True)
                dist.barrier()


def test_saving_keeps_the_last_steps_sets_aside_what_is_in_the_way_and_writes_events(tmp_path: Path) -> None:
    with World(2) as world:
        world.run(save_three, tmp_path)
    assert [step.number for step in list_steps(tmp_path) if step.whole] == [2, 3]
    assert len(list(tmp_path.glob(".bad-step-00000002-*"))) == 1
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(event["event"], event["step"]) for event in events] == [("save", 1), ("save", 2), ("delete", 1), ("save", 3)]
    assert list(events[0]["seconds"]) == list(PHASES)
    numbered = [
        line.split()[1] for line in (sys.modules["ckptlab.checkpoint.save"].__doc__ or "").splitlines() if line[:1].isdigit()
    ]
    assert numbered == list(PHASES), "the docstring of save tells other phases"


def save_on_storage_of_my_own(run: Path) -> str:
    state, _ = make_job()
    try:
        with Checkpointer(run / f"of-{dist.get_rank()}") as checkpointer:
            checkpointer.save(state)
    except SaveError as error:
        return str(error)
    return ""


def load_from_storage_of_my_own(run: Path) -> str:
    state, _ = make_job()
    try:
        load(run / f"of-{dist.get_rank()}" / "step-00000001", state.wanted)
    except LoadError as error:
        return str(error)
    return ""


def test_ranks_that_do_not_see_the_same_storage_are_told(tmp_path: Path) -> None:
    with World(2) as world:
        told = world.run(save_on_storage_of_my_own, tmp_path)
        assert all("rank 1: StepError" in words or "all ranks must share the run's storage" in words for words in told), told
        world.run(train, tmp_path / "of-0", 1)
        world.restart()
        world.run(train, tmp_path / "of-1", 1, 0, 3)
        told = world.run(load_from_storage_of_my_own, tmp_path)
        assert all("rank 1 reads another manifest than rank 0" in words for words in told), told


def test_another_world_size_goes_on_with_the_same_global_batches(tmp_path: Path) -> None:
    alone, changed = tmp_path / "alone", tmp_path / "changed"
    with World(2) as world:
        world.run(train, alone, 9)
        world.run(train, changed, 3)
    with World(3) as world:
        world.run(train, changed, 9)

    def batches(run: Path) -> list[tuple[int, list[int]]]:
        lines = [json.loads(line) for rank in range(3) for line in read_lines(run / f"trained-{rank}.jsonl")]
        by_step = {step: [i for line in lines if line["step"] == step for i in line["samples"]] for step in range(1, 10)}
        return sorted(by_step.items())

    assert batches(changed) == batches(alone)


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_world_size_that_does_not_divide_the_global_batch_is_refused(tmp_path: Path) -> None:
    with World(5) as world, pytest.raises(RankRaised, match=r"global_batch=12 cannot be dealt out evenly to 5 ranks"):
        world.run(train, tmp_path, 2)
    assert list(tmp_path.iterdir()) == []


HELD: list[Checkpointer] = []


def hold_the_run(run: Path) -> None:
    HELD.append(Checkpointer(run))
    HELD[0].resume(make_job()[0])


def test_a_second_live_run_in_the_directory_is_refused(tmp_path: Path) -> None:
    with World(2) as first, World(2) as second:
        first.run(hold_the_run, tmp_path)
        with pytest.raises(RankRaised, match="in use by process"):
            second.run(train, tmp_path, 1)
    with World(2) as third:
        third.run(train, tmp_path, 1)
    assert [step.number for step in list_steps(tmp_path)] == [1]


def save_into_a_directory_that_was_removed(run: Path) -> str:
    state = make_state("fsdp", 1)
    with Checkpointer(run) as checkpointer:
        checkpointer.resume(state)
        if dist.get_rank() == 1:
            shutil.rmtree(run)
        dist.barrier()
        try:
            checkpointer.save(state)
        except SaveError as error:
            return str(error)
    return ""


def test_a_run_that_was_removed_under_a_process_is_not_made_again_without_its_lock(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with World(2) as world:
        told = world.run(save_into_a_directory_that_was_removed, run)
    assert told[0] == told[1]
    assert "was removed or replaced while this process was using it" in told[0]
    assert not run.exists()


def test_a_step_is_not_saved_twice(tmp_path: Path) -> None:
    with World(2) as world:
        world.run(train, tmp_path, 1)
        before = tree(tmp_path)
        with pytest.raises(RankRaised, match="step-00000001 is saved already"):
            world.run(save_step_one_again, tmp_path)
    assert {**tree(tmp_path), "events.jsonl": b""} == {**before, "events.jsonl": b""}


def save_step_one_again(run: Path) -> None:
    state, _ = make_job()
    state.step = 1
    with Checkpointer(run) as checkpointer:
        checkpointer.save(state)


def save_before_the_optimizer_stepped(run: Path) -> None:
    state, _ = make_job()
    with Checkpointer(run) as checkpointer:
        for _ in state.steps(until=1):
            checkpointer.save(state)


def test_a_save_before_the_optimizer_stepped_is_refused_on_all_ranks(tmp_path: Path) -> None:
    with World(2) as world, pytest.raises(RankRaised, match="has not stepped"):
        world.run(save_before_the_optimizer_stepped, tmp_path)
    assert list_steps(tmp_path) == []


def test_a_file_that_cannot_be_read_any_more_is_a_bad_block_with_its_tensors(tmp_path: Path) -> None:
    step = save(tmp_path, 1, Contents(model={"w": torch.arange(6.0)}))
    filled = {"w": torch.zeros(6)}

    def wanted(manifest: object, state: object) -> Contents:
        file = step / "model/model-00001-of-00001.safetensors"
        file.unlink()
        os.mkfifo(file)  # after the step was found whole, as a disk dies
        return Contents(model=filled)

    with pytest.raises(CorruptError, match=r"bytes 0-4120: cannot be read: .* not a regular file; tensors in it: w") as caught:
        load(step, wanted)
    assert caught.value.state_changed is False
    assert torch.equal(filled["w"], torch.zeros(6))


def test_a_step_below_the_others_is_kept_when_it_is_saved_and_no_number_is_too_large_unnoticed(tmp_path: Path) -> None:
    for number in (100, 110, 120, 10):
        step = save(tmp_path, number, Contents(model={"w": torch.zeros(1)}), keep_last=3)
        assert read_step(step).whole
    with pytest.raises(SaveError, match=r"a step is a number from 0 to"):
        save(tmp_path, 10**18, Contents(model={"w": torch.zeros(1)}))


def test_a_step_whose_file_was_taken_away_while_it_was_saved_is_not_committed(tmp_path: Path) -> None:
    def take_away(phase: str) -> None:
        if phase == "agree":
            next(tmp_path.glob(".tmp-*/state.json")).unlink()

    with pytest.raises(SaveError, match=r"state.json: missing"):
        save(tmp_path, 1, Contents(model={"w": torch.zeros(1)}), on_phase=take_away)
    assert list_steps(tmp_path) == []


class Drawing(Dataset[torch.Tensor]):
    """Samples that are only noise, drawn in a loader worker from its global generator."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(3)


def test_loader_workers_draw_new_numbers_in_every_epoch_and_after_a_resume_at_the_same_place(tmp_path: Path) -> None:
    def job() -> TrainState:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        loader = DataLoader(Drawing(), batch_sampler=ResumableSampler(4, global_batch=2, seed=0), num_workers=1)
        return TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()), loader=loader)

    def drawn(state: TrainState, until: int) -> list[list[float]]:
        return [batch.flatten().tolist() for (batch,) in state.steps(until=until)]

    first = drawn(job(), until=6)
    assert len({str(numbers) for numbers in first}) == 6, "an epoch has the noise of another"
    assert drawn(job(), until=6) == first, "the same run draws other numbers"


def test_one_process_cannot_have_a_run_twice_and_a_rank_that_has_not_met_the_others_cannot_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = torch.nn.Linear(1, 1)
    state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()))
    with Checkpointer(tmp_path) as first:
        first.save(state)
        with Checkpointer(tmp_path) as second, pytest.raises(StepError, match="in use by this process"):
            second.resume(state)
    with Checkpointer(tmp_path) as third:
        third.resume(state)
    monkeypatch.setenv("WORLD_SIZE", "2")  # as torchrun sets it
    with pytest.raises(SaveError, match=r"torch.distributed is not initialised.*init_from_environment"):
        save(tmp_path, 1, Contents(model={"w": torch.zeros(1)}))


def test_events_that_cannot_be_written_keep_no_run_from_saving_and_resuming(tmp_path: Path) -> None:
    with World(2) as world:
        world.run(train, tmp_path, 1)
        (tmp_path / "events.jsonl").unlink()
        (tmp_path / "events.jsonl").mkdir()
        world.run(train, tmp_path, 2)
        assert world.run(resume_and_tell, tmp_path) == [("", 2, None)] * 2


def test_contents_without_ranks_are_saved_and_loaded_in_one_process(tmp_path: Path) -> None:
    config = tmp_path / "of_the_run.json"
    config.write_text('{"hidden_size": 6}')
    contents = Contents(model={"w": torch.arange(6.0)}, state={"note": "kept"}, model_files={"config.json": config})
    step = save(tmp_path, 1, contents)
    filled = {"w": torch.zeros(6)}
    assert load(step, lambda manifest, state: Contents(model=filled)).state == {"note": "kept"}
    assert torch.equal(filled["w"], torch.arange(6.0))
    assert (step / "model/config.json").read_text() == '{"hidden_size": 6}'
    assert list(verify(read_step(step))) == []
    assert not dist.is_initialized()
