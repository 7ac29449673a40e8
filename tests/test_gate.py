"""Gates, events and settings of a `Checkpointer`: one rank's no is every rank's, and what happened is told once."""

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from states import make_state

from ckptlab.checkpoint.tensor_bytes import DTYPES
from ckptlab.errors import SaveError, UsageError
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState, finite
from ckptlab.steps.events import read_events
from ckptlab.tiers import Local, Memory

SLEPT = 0.05  # seconds
REFUSED = "rank 1: not finite: few.weight (1 of 6 values here), exp_avg::blocks.weight (2 of 527360 values here)"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(2) as world:
        yield world


def steps_of(run: Path) -> list[int]:
    return sorted(int(name.removeprefix("step-")) for name in os.listdir(run) if name.startswith("step-"))


def told_by(events: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [(e["event"], e["step"], e.get("outcome")) for e in events]


def save_with_a_nan(run: Path, background: Literal["wait"] | None, on_save_error: Literal["raise", "warn"]) -> list[Any]:
    """Save steps 1, 2 and 3; in step 2, rank 1 has values that are not finite. Return what came of step 2."""
    state = make_state("fsdp", 1)
    state.model.register_buffer("mask", torch.full((3,), -math.inf))
    few, blocks = state.model.few.weight, state.model.blocks.weight
    poisoned = few.to_local().detach()[0, :1], state.optimizer.state[blocks]["exp_avg"].to_local()[0, :2]
    with Checkpointer(
        run, every=1, keep_last=1, gate=finite, background=background, on_save_error=on_save_error
    ) as checkpointer:
        checkpointer.save(state)
        state.step = 2
        kept = [values.clone() for values in poisoned]
        if dist.get_rank() == 1:
            poisoned[0].fill_(math.nan), poisoned[1].fill_(-math.inf)
        generators = torch.get_rng_state()
        try:
            told = [checkpointer.save_if_due(state)]
        except SaveError as error:
            told = [str(error), error.committed]
        assert torch.equal(generators, torch.get_rng_state())
        there = steps_of(run)
        for values, mended in zip(poisoned, kept, strict=True):
            values.copy_(mended)
        state.step = 3
        checkpointer.save_if_due(state)
    return [told, there]


@pytest.mark.parametrize("background", [None, "wait"])
def test_a_step_with_a_nan_on_one_rank_is_saved_by_none_and_the_newest_whole_step_stays(
    background: Literal["wait"] | None, world: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    of_rank_0, of_rank_1 = world.run(save_with_a_nan, tmp_path, background, "raise")
    assert of_rank_0 == of_rank_1
    (message, committed), there = of_rank_0
    assert message.startswith(f"step 2 is not saved in {tmp_path}: the gate refused it, {REFUSED}")
    assert "resume from the newest whole step" in message
    assert (committed, there) == (False, [1])
    events = read_events(tmp_path)
    assert told_by(events) == [
        ("save", 1, "committed"),
        ("save", 2, "refused"),
        ("delete", 1, "deleted"),
        ("save", 3, "committed"),
        *([("wait", 3, None)] if background else []),
    ]
    assert events[1]["why"] == REFUSED
    warned = world.run(save_with_a_nan, tmp_path / "warned", background, "warn")
    assert warned == [[[None], [1]]] * 2
    assert REFUSED in capfd.readouterr().out
    assert steps_of(tmp_path / "warned") == [3]


class Holder(torch.nn.Module):
    """Parameters of every dtype that has NaN, among them an empty, a 0-dim and a transposed one."""

    def __init__(self) -> None:
        super().__init__()
        for name, dtype in DTYPES.items():
            if dtype.is_floating_point or dtype.is_complex:
                self.register_parameter(name, torch.nn.Parameter(torch.ones(2, 3).to(dtype).t(), requires_grad=False))
        self.empty = torch.nn.Parameter(torch.empty(0, 3))
        self.one = torch.nn.Parameter(torch.tensor(1.0))
        self.large = torch.nn.Parameter(torch.full((300,), 6e4, dtype=torch.float16))  # their sum is not finite


def test_finite_finds_one_nan_in_every_dtype_and_is_not_misled_by_a_large_sum() -> None:
    model = Holder()
    state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()))
    assert finite(state, []) is None
    names = [name for name, param in model.named_parameters() if param.numel()]
    assert len(names) == 12
    for name in names:
        flat = dict(model.named_parameters())[name].detach().t().view(-1)
        kept = flat[-1:].clone()
        flat[-1:] = torch.tensor([math.nan]).to(flat.dtype)
        values = 2 * flat.numel() if flat.is_complex() else flat.numel()
        assert finite(state, []) == f"not finite: {name} (1 of {values} values here)"
        flat[-1:] = kept


class Counter:
    """State that takes its time, and that rank 1 cannot give at step 5."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        time.sleep(SLEPT)
        if self.step == 5 and dist.get_rank() == 1:
            raise KeyError("the counter of rank 1")
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to take."""


def save_through_a_gate(run: Path) -> list[str | None]:
    """Save steps 1 to 6 through a gate that does something else each time; return what each came to."""
    model, counter, told = torch.nn.Linear(2, 2), Counter(), []
    torch.nn.init.ones_(model.weight), torch.nn.init.ones_(model.bias)

    def gate(state: TrainState, events: Sequence[Mapping[str, Any]]) -> Any:
        dist.barrier()
        if state.step == 2 and dist.get_rank() == 1:
            raise ZeroDivisionError("no steps yet")
        if state.step == 3:
            return False
        return str(told_by(events)) if state.step == 4 else None

    state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()), counter=counter)
    with Checkpointer(run, gate=gate) as checkpointer:
        for counter.step in range(1, 7):
            state.step = counter.step
            try:
                told.append(str(checkpointer.save(state)))
            except SaveError as error:
                told.append(str(error))
    return told


def test_what_a_gate_says_returns_or_raises_on_any_rank_reaches_all_ranks(world: World, tmp_path: Path) -> None:
    of_rank_0, of_rank_1 = world.run(save_through_a_gate, tmp_path)
    assert of_rank_0 == of_rank_1
    _, raised, false, saw, failed, _ = of_rank_0
    assert "rank 1: the gate raised ZeroDivisionError: no steps yet" in raised
    assert "rank 0: the gate returned False; a str says why" in false
    assert "(also refused: 1 of the other ranks)" in false
    events = read_events(tmp_path)
    assert f"rank 0: {told_by(events[:3])}" in saw
    assert "step 5 is not saved" in failed
    assert "rank 1: KeyError: 'the counter of rank 1'" in failed
    outcomes = ["committed", "refused", "refused", "refused", "failed", "committed"]
    assert told_by(events) == [("save", step, outcome) for step, outcome in enumerate(outcomes, 1)]
    phases: Any = [event.get("seconds", {}) for event in events]
    stalls = [float(str(event["stall"])) - sum(seconds.values()) for event, seconds in zip(events, phases, strict=True)]
    assert min(stalls) > SLEPT / 2, "training waits for the state, too"
    assert "the counter of rank 1" in str(events[4]["error"])


def save_and_listen(run: Path) -> list[Any]:
    """Save, refuse, wait and resume; return the events that were told, and in which threads."""
    model, told, threads = torch.nn.Linear(2, 2), [], set()

    def listen(event: dict[str, Any]) -> None:
        told.append(event)
        threads.add(threading.current_thread().name)
        raise ValueError("of the listener")

    state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()))
    every, gate = {"every": "auto", "mtbf_hours": 1e-12}, lambda state, events: "odd" if state.step == 15 else None
    with Checkpointer(
        run, **every, keep_last=1, gate=gate, on_event=listen, background="wait", on_save_error="warn"
    ) as checkpointer:
        for state.step in (1, 2, 15):
            checkpointer.save(state)
        assert checkpointer.resume(state) == 2
        if dist.get_rank() == 0:
            (run / "events.jsonl").rename(run / "kept.jsonl")
            (run / "events.jsonl").mkdir()
        state.step = 16
        checkpointer.save(state)
    return [told, sorted(threads)]


def test_every_event_is_told_as_it_is_written_and_a_listener_that_raises_ends_nothing(
    world: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (told, threads), (of_rank_1, _) = world.run(save_and_listen, tmp_path)
    assert of_rank_1 == []
    (tmp_path / "events.jsonl").rmdir()
    (tmp_path / "kept.jsonl").rename(tmp_path / "events.jsonl")
    written = read_events(tmp_path)
    assert told[: len(written)] == written
    assert {event["event"] for event in written} == {"save", "delete", "interval", "load"}
    assert {event.get("outcome") for event in written} >= {"committed", "refused", "loaded", "deleted"}
    rest = ("interval", 16, None), ("delete", 2, "deleted"), ("save", 16, "committed"), ("wait", 16, None)
    assert told_by(told[len(written) :]) == list(rest), "also what could not be written"
    assert [name for name in threads if name.startswith("ckptlab")] == [f"ckptlab save of step {step}" for step in (1, 16, 2)]
    assert "on_event raised" in capfd.readouterr().out
    assert steps_of(tmp_path) == [16]


def open_differently(run: Path) -> str:
    """Open with settings that differ between ranks, then with the same; return what the first came to."""
    rank, model = dist.get_rank(), torch.nn.Linear(2, 2)
    torch.nn.init.ones_(model.weight), torch.nn.init.ones_(model.bias)
    state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()))
    one = {"every": 10 + rank, "background": None if rank else "wait", "gate": finite if rank else None, "keep_last": 2 + rank}
    with pytest.raises(UsageError) as refused, Checkpointer(run, keep_every=5, **one) as checkpointer:
        checkpointer.resume(state)
    with Checkpointer(run, keep_every=5) as checkpointer:
        checkpointer.save(state)
    return str(refused.value)


def test_settings_that_differ_between_ranks_are_refused_and_say_which_rank_has_what(world: World, tmp_path: Path) -> None:
    one, other = world.run(open_differently, tmp_path)
    assert one == other
    assert one == (
        "Checkpointer: every is 10 on rank 0, 11 on rank 1; keep_last is 2 on rank 0, 3 on rank 1; background is "
        "'wait' on rank 0, None on rank 1; gate is None on rank 0, given on rank 1; give every rank the same"
    )
    assert steps_of(tmp_path) == [0], "the lock was given back"


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        (["s3://bucket/run"], "a list of"),
        ([Memory], "a list of"),
        (Local("tier", every=1), "a list of"),
        ([Local("run/tier", every=1)], "one in the other"),
        ([Local("tier", every=1), Memory("tier", every=1)], "one in the other"),
    ],
)
def test_tiers_that_cannot_be_are_refused_before_anything_is_made(tiers: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Checkpointer("run", tiers=tiers)
    with pytest.raises(UsageError, match="a function of the state and the events"):
        Checkpointer("run", gate="finite")
