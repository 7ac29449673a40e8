"""A signal to any rank: all save the same step and end, and the run goes on as though there had been none."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path, PosixPath
from typing import Literal

import pytest
import torch
import torch.distributed as dist
from jobs import make_job, record, trained
from processes import descendants, until
from states import make_state

from ckptlab.cli.main import run as cli
from ckptlab.errors import Preempted, RankLost, RankRaised, UsageError
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState
from ckptlab.resume.preemption import AGREE_SECONDS, too_slow
from ckptlab.resume.watchdog import CHECK_SECONDS
from ckptlab.steps import compare, list_steps, newest_step
from ckptlab.steps.events import read_events
from ckptlab.steps.steps import find_step
from ckptlab.train.launch import launch
from ckptlab.train.options import Options
from ckptlab.train.records import read_records
from ckptlab.train.report import find_differences

TERM, USR1 = signal.SIGTERM, signal.SIGUSR1
STEPS = 9
Background = Literal["wait", "skip"] | None
Stopped = tuple[int, object, int]  # the last step, the exit code, batches of evaluation


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    with World(2) as world:
        yield world


@pytest.fixture
def world(shared_world: World) -> World:
    """The same two processes for every test; a test that loses one restarts them."""
    return shared_world


@pytest.fixture(scope="module")
def unbroken(shared_world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("unbroken")
    assert shared_world.run(train_on, run) == [None, None]
    return run


def train_on(
    run: Path,
    at: Callable[[int], object] = lambda step: None,
    *,
    background: Background = None,
    workers: int = 0,
    evaluate_at: int = 0,
    save_always: bool = False,
) -> Stopped | None:
    """Train up to the end, doing `at(step)` in the middle of each step; return how a signal has stopped it, if one did."""
    state, scheduler = make_job(workers)
    batches = 0
    try:
        every = None if save_always else 3
        with Checkpointer(run, every=every, keep_last=None, background=background, grace_seconds=3600) as checkpointer:
            checkpointer.resume(state)
            for window in state.steps(until=STEPS):
                state.optimizer.zero_grad()
                loss = state.model(window[0][1]).square().mean()
                at(state.step)
                loss.backward()
                state.optimizer.step()
                scheduler.step()
                record(run, state.step, window[0][0].tolist(), [loss])
                while state.step == evaluate_at and not checkpointer.poll():
                    batches += 1
                    at(-batches)
                if save_always:
                    checkpointer.save(state)
                checkpointer.save_if_due(state)
    except Preempted as preempted:
        os.kill(os.getpid(), TERM)  # one more signal does not change how the process ends
        return preempted.step, preempted.code, batches
    return None


def sends(*signals: tuple[int, int, signal.Signals]) -> Callable[[int], None]:
    """Return what sends this rank the signals that are for it: (rank, step, number)."""

    def send(step: int) -> None:
        for rank, when, number in signals:
            if (rank, when) == (dist.get_rank(), step):
                os.kill(os.getpid(), number)

    return send


def stop_in_a_step(run: Path, background: Background, signals: Sequence[tuple[int, int, signal.Signals]]) -> Stopped | None:
    return train_on(run, sends(*signals), background=background)


def assert_goes_on_as_unbroken(world: World, run: Path, unbroken: Path) -> None:
    assert world.run(train_on, run) == [None, None]
    assert not (run / "PREEMPTED").exists()
    assert list(compare(*(find_step(path / f"step-{STEPS:08d}") for path in (unbroken, run)))) == []
    for rank in range(2):
        assert trained(unbroken, rank) == trained(run, rank)


@pytest.mark.parametrize(
    ("background", "signals", "word", "step"),
    [
        (None, [(1, 4, TERM)], ("SIGTERM", 1), 5),
        ("wait", [(0, 5, USR1), (1, 5, USR1)], ("SIGUSR1", 1), 6),  # due anyway
        ("skip", [(0, 3, USR1), (1, 4, TERM)], ("SIGUSR1", 0), 4),  # a second one while all stop
    ],
)
def test_a_signal_in_a_step_ends_all_ranks_after_one_saved_step_and_the_run_goes_on(
    world: World, tmp_path: Path, unbroken: Path, background: Background, signals: list, word: tuple[str, int], step: int
) -> None:
    assert world.run(stop_in_a_step, tmp_path, background, signals) == [(step, 75, 0)] * 2
    assert [found.number for found in list_steps(tmp_path) if found.whole] == sorted({3, step})
    assert json.loads((tmp_path / "PREEMPTED").read_text()) == {"step": step, "signal": word[0], "rank": word[1]}
    assert read_events(tmp_path)[-1]["event"] == "preempted"
    assert_goes_on_as_unbroken(world, tmp_path, unbroken)


def stop_in_evaluation(run: Path) -> Stopped | None:
    return train_on(run, sends((1, -4, TERM)), evaluate_at=4)


def test_a_signal_in_evaluation_ends_it_on_all_ranks_after_the_same_batch(world: World, tmp_path: Path, unbroken: Path) -> None:
    assert world.run(stop_in_evaluation, tmp_path) == [(4, 75, 5)] * 2
    assert_goes_on_as_unbroken(world, tmp_path, unbroken)


class Alarm(PosixPath):
    """A file that signals the process which opens it: the coordinator, in the middle of a save."""

    def __fspath__(self) -> str:
        os.kill(os.getpid(), TERM)
        return super().__fspath__()


def stop_in_a_save(run: Path, background: Background) -> list[int]:
    """Save steps 1 and 2, the coordinator being signalled in the first; return the steps after which this rank went on."""
    (run / "config.json").write_text("{}")
    went_on: list[int] = []
    with suppress(Preempted), Checkpointer(run, every=1, background=background, grace_seconds=3600) as checkpointer:
        for step in range(1, 9):
            made = make_state("fsdp", step)
            files = {"config.json": (Alarm if step == 1 else Path)(run / "config.json")}
            state = TrainState(model=made.model, optimizer=made.optimizer, model_files=files)
            state.step = step
            checkpointer.save_if_due(state)
            if step == 1:
                checkpointer.wait()  # the signal has come
            went_on.append(step)
    return went_on


@pytest.mark.parametrize("background", [None, "wait"])
def test_a_signal_in_a_save_lets_it_end_and_all_save_once_more(world: World, tmp_path: Path, background: Background) -> None:
    assert world.run(stop_in_a_save, tmp_path, background) == [[1, 2]] * 2
    assert [step.number for step in list_steps(tmp_path) if step.whole] == [1, 2, 3]


def stop_where_each_step_is_saved(run: Path) -> Stopped | None:
    return train_on(run, sends((1, 4, USR1)), background="wait", save_always=True)


def test_a_step_that_is_being_saved_already_is_only_waited_for(world: World, tmp_path: Path) -> None:
    assert world.run(stop_where_each_step_is_saved, tmp_path) == [(5, 75, 0)] * 2
    saves = [event for event in read_events(tmp_path) if event["event"] == "save"]
    assert [(event["step"], event["outcome"]) for event in saves] == [(step, "committed") for step in range(1, 6)]


def stay(connection: Connection) -> None:
    connection.send("there")
    signal.pause()


def signal_everyone(step: int) -> None:
    """Let another process signal this rank and all its children, as Slurm does; what is no loader worker dies of it."""
    if step == 2:  # of an epoch of four
        mine, others = multiprocessing.Pipe()
        other = multiprocessing.Process(target=stay, args=(others,))
        other.start()
        assert mine.recv() == "there"
        pids = {*descendants(os.getpid()), os.getpid()}
        subprocess.run(["kill", "-TERM", *map(str, pids)], check=True)
        other.join(10)
        assert other.exitcode == -TERM


def stop_everyone(run: Path) -> Stopped | None:
    return train_on(run, signal_everyone, workers=1)


def test_loader_workers_outlive_a_signal_to_every_process_and_other_children_die_of_it(world: World, tmp_path: Path) -> None:
    assert world.run(stop_everyone, tmp_path) == [(3, 75, 0)] * 2


def poll_unequally(run: Path) -> None:
    with Checkpointer(run, grace_seconds=3600) as checkpointer:
        state = make_state("fsdp", 1)
        for _ in range(2 + dist.get_rank()):
            checkpointer.poll()
        checkpointer.save_if_due(state)
        checkpointer.poll()


def test_ranks_that_poll_unequally_often_are_told_before_a_signal_comes(world: World, tmp_path: Path) -> None:
    with pytest.raises(
        RankRaised,
        match=r"in evaluation, and another one at the end of step 1.*every rank calls poll\(\) equally often.*\(2 of 2 ranks",
    ):
        world.run(poll_unequally, tmp_path)


def handlers(run: Path) -> list[bool]:
    """Return whether SIGTERM is as it was: in the block, after it, and where no grace is given."""
    before, found = signal.getsignal(TERM), []
    with Checkpointer(run / "a", grace_seconds=1) as checkpointer:
        checkpointer.resume(make_state("fsdp", 1))
        found.append(signal.getsignal(TERM) == before)
    found.append(signal.getsignal(TERM) == before)
    with Checkpointer(run / "b") as checkpointer:
        checkpointer.resume(make_state("fsdp", 1))
        return [*found, signal.getsignal(TERM) == before]


def open_in_a_thread(run: Path) -> str:
    told: list[str] = []

    def work() -> None:
        with pytest.raises(UsageError) as caught:
            Checkpointer(run, grace_seconds=1).resume(make_state("fsdp", 1))
        told.append(str(caught.value))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return told[0]


def test_signals_are_handled_while_the_run_is_open_and_in_the_main_thread_only(world: World, tmp_path: Path) -> None:
    assert world.run(handlers, tmp_path) == [[False, True, True]] * 2
    assert all("in the main thread only" in told for told in world.run(open_in_a_thread, tmp_path))
    with pytest.raises(UsageError, match="grace_seconds=0"):
        Checkpointer(tmp_path, grace_seconds=0)


def save_twice(run: Path, grace_seconds: float) -> None:
    with Checkpointer(run, every=1, grace_seconds=grace_seconds) as checkpointer:
        for step in (1, 2):
            checkpointer.save_if_due(make_state("fsdp", step))


def test_a_grace_period_that_is_too_short_is_told_once_and_beforehand(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.run(save_twice, tmp_path / "long", 3600)
    assert capsys.readouterr().out == ""
    world.run(save_twice, tmp_path / "short", 1e-9)
    out = capsys.readouterr().out
    assert (out.count("until the run is saved, and grace_seconds is 1e-09"), out.count("[rank 1]")) == (1, 0)
    assert too_slow(60, 20, 10, 5) is None
    assert "it may take 61.0 s until the run is saved, and grace_seconds is 60: 40.0 s until" in str(too_slow(60, 20, 11, 5))


class Slow(PosixPath):
    """A file that takes longer to open than the watchdog would wait, and then some, from SIGTERM on."""

    def __fspath__(self) -> str:
        os.kill(os.getpid(), TERM)
        time.sleep(AGREE_SECONDS + 5 * CHECK_SECONDS)
        return super().__fspath__()


def save_slowly_under_an_agent(run: Path) -> object:
    os.environ["TORCHELASTIC_RUN_ID"] = "job"
    (run / "config.json").write_text("{}")
    try:
        with Checkpointer(run, every=1, grace_seconds=3600) as checkpointer:
            for step in range(1, 4):
                made = make_state("fsdp", step)
                files = {"config.json": (Slow if step == 1 else Path)(run / "config.json")}
                state = TrainState(model=made.model, optimizer=made.optimizer, model_files=files)
                state.step = step
                checkpointer.save_if_due(state)
    except Preempted as preempted:
        return preempted.code
    finally:
        del os.environ["TORCHELASTIC_RUN_ID"]


def test_under_an_agent_a_signal_lets_a_long_save_end_and_the_exit_code_is_0(world: World, tmp_path: Path) -> None:
    assert world.run(save_slowly_under_an_agent, tmp_path) == [0, 0]
    assert [step.number for step in list_steps(tmp_path) if step.whole] == [1, 2, 3]


def hang_under_an_agent(run: Path) -> None:
    os.environ["TORCHELASTIC_RUN_ID"] = "job"
    with Checkpointer(run, grace_seconds=3600) as checkpointer:
        for _ in range(3):
            checkpointer.poll()
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        (run / "hangs").touch()
        dist.all_reduce(torch.ones(1))


def test_under_an_agent_a_rank_that_hangs_because_another_is_lost_ends_by_the_signal(world: World, tmp_path: Path) -> None:
    with signalled(world, tmp_path / "hangs", 0), pytest.raises(RankLost, match="rank 0 was killed by SIGTERM"):
        world.run(hang_under_an_agent, tmp_path)
    world.restart()


@contextmanager
def signalled(world: World, when: Path, rank: int) -> Iterator[None]:
    """Send SIGTERM to a rank when there is a file."""

    def send() -> None:
        if until(when.exists, 60):
            world.kill(rank, TERM)

    thread = threading.Thread(target=send)
    thread.start()
    yield
    thread.join()


def poll_until_lost(run: Path) -> None:
    with Checkpointer(run, grace_seconds=3600) as checkpointer:
        for turn in range(3):
            if (turn, dist.get_rank()) == (1, 1):
                os.kill(os.getpid(), signal.SIGKILL)
            checkpointer.poll()


def test_a_rank_that_is_lost_is_told_by_the_next_call(world: World, tmp_path: Path) -> None:
    with pytest.raises(RankLost, match="rank 1 was killed by SIGKILL") as lost:
        world.run(poll_until_lost, tmp_path)
    world.restart()
    raised = str(lost.value).partition("rank 0 raised")[2]  # now and then gloo does not tell of a lost connection, and it waits
    assert not raised or "SaveError: the ranks cannot agree" in raised


def wait_without_grace(run: Path) -> None:
    with Checkpointer(run, every=1) as checkpointer:
        checkpointer.save_if_due(make_state("fsdp", 1))
        assert not checkpointer.poll()
        (run / "waits").touch()
        dist.barrier()
        signal.pause()


def test_without_a_grace_period_a_signal_ends_its_rank(world: World, tmp_path: Path) -> None:
    with signalled(world, tmp_path / "waits", 1), pytest.raises(RankLost, match="rank 1 was killed by SIGTERM"):
        world.run(wait_without_grace, tmp_path)
    world.restart()


def process_of(rank: int, run: Path, above: int) -> int | None:
    """Return the process below `above` that trains as `rank`: it has its records open."""
    for pid in descendants(above):
        with suppress(OSError):
            if any(
                os.readlink(file).endswith(f"{run}/records/rank-{rank}.jsonl") for file in Path(f"/proc/{pid}/fd").iterdir()
            ):
                return pid
    return None


def signalled_training(command: Sequence[str], run: Path, number: signal.Signals, whom: Literal["rank 1", "launcher"]) -> int:
    """Train, with a signal when rank 1 has done a step; the run has stopped a few steps later. Return the exit code."""
    records = run / "records" / "rank-1.jsonl"
    before = len(read_records(run, 1)) if records.exists() else 0
    process = subprocess.Popen(command)
    try:
        assert until(lambda: process_of(1, run, process.pid) is not None and len(read_records(run, 1)) > before, 60)
        pid = process.pid if whom == "launcher" else process_of(1, run, process.pid)
        assert pid is not None, "it is over already"
        os.kill(pid, number)
        code = process.wait(100)
    finally:
        process.kill()
    assert before < json.loads((run / "PREEMPTED").read_text())["step"] == newest_step(run).number < LAST
    return code


LAST = 40


def test_a_run_that_is_stopped_again_and_again_by_any_launcher_ends_as_the_unbroken_one(tmp_path: Path) -> None:
    unbroken, run = tmp_path / "unbroken", tmp_path / "run"
    launch(Options(run=unbroken, steps=LAST, every=100, global_batch=2), ranks=2, max_restarts=0, say=print)
    job = [str(run), "--steps", str(LAST), "--every", "100", "--global-batch", "2", "--grace-seconds", "150"]
    train = ["train", "--ranks", "2", "--max-restarts", "0", *job]
    ckptlab = [sys.executable, "-c", "from ckptlab.cli.main import main; main()", *train]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "ckptlab.train", *job]
    assert signalled_training(ckptlab, run, TERM, "launcher") == 75
    assert signalled_training(torchrun, run, TERM, "rank 1") == 0
    assert cli(train) == 0
    assert find_differences(unbroken, run, step=LAST, ranks=2) == {}
