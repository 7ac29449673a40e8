"""Saves in the background: what is written is the moment of the save, and what goes wrong shows at the next call."""

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
import torch.distributed as dist
from gate import Gate
from jobs import train, trained
from states import make_state

from ckptlab.checkpoint import Contents
from ckptlab.checkpoint.host_buffer import HostBuffer
from ckptlab.checkpoint.tensor_bytes import DTYPES, TensorBytes
from ckptlab.errors import RankLost, SaveError
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState
from ckptlab.steps import compare, list_steps
from ckptlab.steps.events import read_events

Mode = Literal["wait", "skip"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Two processes for all tests that kill none."""
    with World(2) as world:
        yield world


def gated(run: Path, seed: int) -> TrainState:
    """Return a state whose save in the background gets no further than the gate, which is closed."""
    state = make_state("fsdp", seed)
    run.mkdir(exist_ok=True)
    (run / "config.json").write_text("{}")
    files = {"config.json": Gate(run / "config.json")}
    gated = TrainState(model=state.model, optimizer=state.optimizer, model_files=files)
    gated.step = seed
    Gate.reached.clear(), Gate.is_open.clear()
    return gated


def digests(step: Path) -> dict[str, str]:
    return {
        path.relative_to(step).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in step.rglob("*")
        if path.is_file()
    }


def numbers(run: Path) -> list[int]:
    """Return the numbers of a run's steps; all are whole."""
    assert [step.fault for step in list_steps(run) if not step.whole] == []
    return [step.number for step in list_steps(run)]


def save_twice_and_change_everything(foreground: Path, background: Path) -> None:
    """Save in the foreground, then the same in the background, of which every value changes before it is written."""
    state = gated(background, 6)
    state.model.register_buffer("turned", torch.arange(12.0).view(3, 4).t())
    state.model.register_buffer("part_of_it", state.model.turned[1:])
    state.model.register_buffer("of_this_rank", torch.full((3,), float(dist.get_rank())))
    state.optimizer.param_groups[0]["lr"] = torch.tensor(0.25)
    Gate.is_open.set()
    with Checkpointer(foreground) as checkpointer:
        checkpointer.save(state)
    Gate.is_open.clear()
    with Checkpointer(background, background="wait") as checkpointer:
        promised = checkpointer.save(state)
        contents = state.contents()
        with torch.no_grad():
            for tensor in (*contents.model.values(), *contents.optim.values(), state.optimizer.param_groups[0]["lr"]):
                tensor.fill_(3)
        state.optimizer.param_groups[0]["betas"] = (0.5, 0.5)
        state.step = 7
        torch.rand(3)
        Gate.is_open.set()
        assert checkpointer.wait() == promised == background / "step-00000006"
        assert checkpointer.wait() is None, "nothing is in flight any more"


def test_every_byte_that_is_written_is_of_the_moment_of_the_save(world: World, tmp_path: Path) -> None:
    foreground, background = tmp_path / "foreground", tmp_path / "background"
    world.run(save_twice_and_change_everything, foreground, background)
    expected = digests(foreground / "step-00000006")
    assert "ranks/rank-00001.safetensors" in expected
    assert digests(background / "step-00000006") == expected


def test_a_copy_is_bitwise_of_every_dtype_also_when_the_buffer_has_to_grow() -> None:
    buffer = HostBuffer()
    for size in (5, 3, 5000):
        raw = torch.arange(size * 3 * 16).mul(37).to(torch.uint8)
        model = {name: raw[: size * 3 * dtype.itemsize].view(dtype).view(size, 3).t() for name, dtype in DTYPES.items()}
        model["empty"], model["one"] = torch.empty(0, 3), torch.tensor(7.0, requires_grad=True)
        copies = buffer.copy(Contents(model=model), 0, 1).copies
        assert copies is not None
        for name, tensor in model.items():
            expected, found = TensorBytes(tensor.detach()), TensorBytes(copies["model"][name].data)
            assert found.read(0, found.num_bytes) == expected.read(0, expected.num_bytes), name


def is_mapped(address: int) -> bool:
    spans = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(begin, 16) <= address < int(end, 16) for begin, end in spans)


def copy_and_fork() -> list[bool]:
    """Return whether this process and one that it forks have a copy that was taken before."""
    copies = HostBuffer().copy(Contents(model={"weight": torch.ones(1 << 20)}), 0, 1).copies
    assert copies is not None
    address = copies["model"]["weight"].data.data_ptr()
    if (child := os.fork()) == 0:
        os._exit(is_mapped(address))
    return [is_mapped(address), bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))]


def test_a_loader_worker_does_not_get_the_copy_whose_pages_would_then_be_copied_again(world: World) -> None:
    assert world.run(copy_and_fork, ranks=[0]) == [[True, False]]


def save_two_at_once(run: Path, mode: Mode) -> tuple[list[str | None], float]:
    """Save step 1, which is stopped until step 2 has begun to wait for it or was left out, then steps 3 and 4.

    Return what each call gave, and how long step 2 could not be begun.
    """
    state, times = gated(run, 1), []

    def let_go_on() -> None:
        times.append(time.monotonic())
        Gate.is_open.set()

    opening = threading.Timer(0.3, let_go_on)
    with Checkpointer(run, every=1, background=mode) as checkpointer:
        given = [checkpointer.save_if_due(state)]
        state.step = 2
        if mode == "wait":
            opening.start()
        times.append(time.monotonic())
        given.append(checkpointer.save_if_due(state))
        opening.start() if mode == "skip" else opening.join()
        checkpointer.wait()
        for state.step in (3, 4):
            given.append(checkpointer.save(state))  # what is asked for is never left out
    return [path and path.name for path in given], times[1] - times[0]


@pytest.mark.parametrize(("mode", "saved"), [("wait", [1, 2, 3, 4]), ("skip", [1, 3, 4])])
def test_a_save_that_comes_too_soon_waits_or_is_left_out_as_it_was_said(
    mode: Mode, saved: list[int], world: World, tmp_path: Path
) -> None:
    (given, stopped), (of_rank_1, _) = world.run(save_two_at_once, tmp_path, mode)
    assert given == of_rank_1 == [f"step-{n:08}" if n in saved else None for n in (1, 2, 3, 4)]
    assert numbers(tmp_path) == saved[-3:], "three are kept"
    saves = {event["step"]: event for event in read_events(tmp_path) if event["event"] == "save"}
    assert {step: event["outcome"] for step, event in saves.items()} == {
        step: "committed" if step in saved else "skipped" for step in (1, 2, 3, 4)
    }
    if mode == "wait":
        assert float(str(saves[2]["stall"])) > stopped, "that long at least training waited for the save"


def save_with_a_full_disk(run: Path, call: str) -> list[object]:
    """Save step 6, of which rank 1 cannot write its part; return what the next call came to, then save step 7."""
    state = make_state("fsdp", 6)
    checkpointer = Checkpointer(run, every=1, background="wait", on_save_error="warn" if call == "warned" else "raise")
    limit(1_000_000)
    try:
        with checkpointer:
            assert checkpointer.save(state) is not None
            if call == "body":
                raise KeyError("of the body")
            if call == "save":
                state.step = 7
                checkpointer.save_if_due(state)
            if call in ("wait", "warned"):
                assert checkpointer.wait() is None
    except (SaveError, KeyError) as error:
        told = [type(error).__name__, str(error), getattr(error, "committed", None)]
    else:
        told = []
    limit(resource.RLIM_INFINITY)
    state.step = 7
    with checkpointer:
        checkpointer.save(state)
    return told


def limit(num_bytes: int) -> None:
    if dist.get_rank() == 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))


def test_a_full_disk_shows_at_the_next_call_on_every_rank_and_the_run_can_go_on(
    world: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for call in ("save", "wait", "close", "warned", "body"):
        run = tmp_path / call
        one, other = world.run(save_with_a_full_disk, run, call)
        assert one == other
        if call == "warned":
            assert one == []
        elif call == "body":
            assert one == ["KeyError", "'of the body'", None]
        else:
            kind, message, committed = one
            assert (kind, committed) == ("SaveError", False)
            assert f"step 6 is not saved in {run}: rank 1: OSError: [Errno 27] File too large" in message
        said = capfd.readouterr().out
        assert ("step 6 is not saved" in said) == (call in ("warned", "body")), call
        assert numbers(run) == [7]
        assert not list(run.glob(".tmp-*"))
        saves = [(event["step"], event["outcome"]) for event in read_events(run) if event["event"] == "save"]
        in_place_of = [(7, "failed")] if call == "save" else []
        assert saves == [(6, "failed"), *in_place_of, (7, "committed")]


def save_without_a_thread(run: Path) -> None:
    """Save while rank 1 gets no thread: no address space has room for such a stack."""
    state = make_state("fsdp", 6)
    with Checkpointer(run, background="wait") as checkpointer:
        threading.stack_size((1 << 47) if dist.get_rank() == 1 else 0)
        try:
            checkpointer.save(state)
        finally:
            threading.stack_size(0)


def test_a_rank_that_gets_no_thread_writes_at_once_and_the_others_in_theirs(world: World, tmp_path: Path) -> None:
    world.run(save_without_a_thread, tmp_path)
    assert numbers(tmp_path) == [6]


END_WITHOUT_CLOSE = """
import sys
import threading
from pathlib import Path
import torch
from gate import Gate
from ckptlab.resume import Checkpointer, TrainState

run = Path(sys.argv[1])
(run / "config.json").write_text("{}")
model = torch.nn.Linear(3, 3)
files = {"config.json": Gate(run / "config.json")}
state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()), model_files=files)
checkpointer = Checkpointer(run, background="wait")
checkpointer.save(state)
assert Gate.reached.wait(60)
assert not list(run.glob("step-*"))
threading.Timer(0.3, Gate.is_open.set).start()
"""


def test_a_process_that_ends_without_close_first_writes_what_it_has_begun(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", END_WITHOUT_CLOSE, str(tmp_path)], check=True, timeout=60, env=environment)
    assert numbers(tmp_path) == [0]


def test_a_process_that_ends_without_close_tells_that_its_last_save_failed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    lost = END_WITHOUT_CLOSE.replace(
        "threading.Timer(0.3, Gate.is_open.set).start()", "import shutil; shutil.rmtree(run); Gate.is_open.set()"
    )
    done = subprocess.run(
        [sys.executable, "-c", lost, str(tmp_path)], timeout=60, env=environment, capture_output=True, text=True
    )
    assert "step 0 is not saved" in done.stderr


def save_and_leave(run: Path) -> None:
    """Save step 6, and leave the world while it is being written, as a script does that ends."""
    state = gated(run, 6)
    Checkpointer(run, background="wait").save(state)
    if dist.get_rank() == 0:
        assert Gate.reached.wait(60)
    dist.barrier()
    dist.destroy_process_group()
    Gate.is_open.set()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.name.startswith("ckptlab"):
            thread.join(60)


def test_a_script_that_leaves_the_world_without_close_loses_no_save(tmp_path: Path) -> None:
    with World(2) as world:
        world.run(save_and_leave, tmp_path)
    assert numbers(tmp_path) == [6]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["outcome"] for event in events] == ["committed"]


def save_in_inference_mode(run: Path) -> None:
    state = make_state("fsdp", 1)
    with Checkpointer(run, background="wait") as checkpointer:
        with torch.inference_mode():
            checkpointer.save(state)
        state.step = 2
        checkpointer.save(state)


def test_a_save_in_inference_mode_does_not_spoil_the_next(world: World, tmp_path: Path) -> None:
    world.run(save_in_inference_mode, tmp_path)
    assert numbers(tmp_path) == [1, 2]


def save_and_die(run: Path, victim: int) -> None:
    """Save step 6; the victim dies before it can be committed; the others write down what the next call came to."""
    state = gated(run, 6)
    checkpointer = Checkpointer(run, background="skip")
    checkpointer.save(state)
    rank = dist.get_rank()
    if rank == 0:
        assert Gate.reached.wait(60)
    dist.barrier()
    if victim in (rank, -1):
        os.kill(os.getpid(), signal.SIGKILL)
    Gate.is_open.set()
    try:
        checkpointer.wait()
    except SaveError as error:
        (run / f"rank-{rank}.told").write_text(json.dumps([str(error), error.committed, error.lost]))
    checkpointer.close()


@pytest.mark.parametrize("victim", [0, 1, -1], ids=["rank 0", "rank 1", "all ranks"])
def test_a_rank_killed_while_a_save_is_pending_is_told_by_the_others_and_nothing_is_committed(
    victim: int, tmp_path: Path
) -> None:
    with World(3) as world, pytest.raises(RankLost):
        world.run(save_and_die, tmp_path, victim)
    assert numbers(tmp_path) == []
    told = [json.loads((tmp_path / f"rank-{rank}.told").read_text()) for rank in range(3) if victim not in (rank, -1)]
    for message, committed, lost in told:
        assert f"lost rank {victim}" in message
        assert lost == [victim]
        assert committed is False or (committed is None and victim == 0), "rank 0 commits: without it that may not be known"


def save_often(run: Path, times: int) -> list[list[int]]:
    """Save 1 MB again and again; return how many files and threads and how much memory this process has, early and late."""
    model, seen = torch.nn.Linear(1024, 256), []
    state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()))
    with Checkpointer(run, background="wait", keep_last=1) as checkpointer:
        for state.step in range(times):
            checkpointer.save(state)
            if state.step in (times // 4, times - 1):
                checkpointer.wait()
                seen.append([len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), private_bytes()])
    return seen


def private_bytes() -> int:
    fields = Path("/proc/self/smaps_rollup").read_text().split()
    return int(fields[fields.index("Pss_Anon:") + 1]) * 1024


def test_many_saves_leave_no_memory_no_file_and_no_thread_behind(world: World, tmp_path: Path) -> None:
    for early, late in world.run(save_often, tmp_path, 40):
        files, threads, num_bytes = (after - before for before, after in zip(early, late, strict=True))
        assert max(files, threads) < 10, "one more with each of thirty saves"
        assert num_bytes < 8 * 2**20, "thirty copies have 30 MB"


def test_a_run_with_saves_in_the_background_is_bitwise_the_other_also_when_it_is_killed_and_resumed(tmp_path: Path) -> None:
    foreground, background = tmp_path / "foreground", tmp_path / "background"
    with World(2) as world:
        world.run(train, foreground, 7)
        with pytest.raises(RankLost):
            world.run(train, background, 7, kill_at=4, background="wait")
        world.restart()
        world.run(train, background, 7, background="wait")
    pairs = list(zip(list_steps(foreground), list_steps(background), strict=True))
    assert [one.number for one, _ in pairs] == list(range(1, 8))
    assert [list(compare(one, other)) for one, other in pairs] == [[]] * 7
    assert [trained(background, rank) for rank in range(2)] == [trained(foreground, rank) for rank in range(2)]
