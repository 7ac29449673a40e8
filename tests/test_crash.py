"""Promise 3: a save is all or nothing, whichever rank is killed after whichever phase, or fails."""

import json
import os
import resource
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from states import load_state, make_state, save_state

from ckptlab.checkpoint import save
from ckptlab.checkpoint.phases import PHASES
from ckptlab.errors import RankLost, ReplicaMismatch, SaveError
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer
from ckptlab.steps import list_steps, newest_step

COMMITTED = PHASES.index("commit")


def save_and_die(run: Path, phase: str, victim: int) -> None:
    """Save step 6; the victim kills itself after `phase`, every other rank writes down what its save came to."""
    rank = dist.get_rank()

    def on_phase(done: str) -> None:
        if done == phase and rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        save(run, 6, make_state("fsdp", 6).contents(), on_phase=on_phase)
        came_to: dict[str, object] = {"saved": True}
    except SaveError as error:
        came_to = {"saved": False, "committed": error.committed, "lost": list(error.lost), "message": str(error)}
    (run / f"rank-{rank}.told").write_text(json.dumps(came_to))


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("phase", PHASES)
def test_a_rank_killed_after_a_phase_leaves_the_old_step_or_the_new_one(phase: str, victim: int, tmp_path: Path) -> None:
    with World(3) as world:
        world.run(save_state, "fsdp", tmp_path, 5)
        with pytest.raises(RankLost):
            world.run(save_and_die, tmp_path, phase, victim)
    # A rank other than the coordinator is needed up to `agree`; the coordinator commits.
    needed = COMMITTED if victim == 0 else PHASES.index("agree")
    expected = 5 if PHASES.index(phase) < needed else 6

    newest = newest_step(tmp_path)
    assert newest is not None
    assert newest.number == expected
    for survivor in {0, 1, 2} - {victim}:
        told = json.loads((tmp_path / f"rank-{survivor}.told").read_text())
        if told["saved"]:
            assert expected == 6
        else:
            assert told["lost"] == [victim], told
            assert f"rank {victim}" in told["message"]
            # The coordinator could commit as soon as it had everybody's outcome: without it nobody else knows.
            assert told["committed"] is (None if victim == 0 and phase != "plan" else False)
    with World(2) as world:
        assert world.run(load_state, "fsdp", newest.path, expected) == [[], []]
        assert world.run(resume_and_save_again, tmp_path, expected) == [expected] * 2
    assert [step.number for step in list_steps(tmp_path) if step.whole][-1] == 7
    assert not list(tmp_path.glob(".tmp-*"))


def resume_and_save_again(run: Path, expected: int) -> int:
    state = make_state("fsdp", 0)
    with Checkpointer(run) as checkpointer:
        resumed = checkpointer.resume(state)
        state.step = 7
        checkpointer.save(state)
    return resumed


def save_with_a_limit(run: Path, victim: int) -> dict[str, object]:
    """Save step 6 while the victim may not write beyond 1 MB of a file."""
    if dist.get_rank() == victim:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    try:
        save(run, 6, make_state("fsdp", 6).contents())
    except SaveError as error:
        return {"message": str(error), "committed": error.committed, "kind": type(error).__name__}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return {}


@pytest.mark.parametrize("victim", [0, 2])
def test_a_write_that_fails_on_one_rank_is_every_ranks_save_error(victim: int, tmp_path: Path) -> None:
    with World(3) as world:
        world.run(save_state, "fsdp", tmp_path, 5)
        told = world.run(save_with_a_limit, tmp_path, victim)
        assert {answer["kind"] for answer in told} == {"SaveError"}
        assert {answer["committed"] for answer in told} == {False}
        assert all(f"rank {victim}: OSError: [Errno 27] File too large: '{tmp_path}/.tmp-" in a["message"] for a in told), told
        assert [step.number for step in list_steps(tmp_path)] == [5]
        assert not list(tmp_path.glob(".tmp-*"))
        world.run(save_state, "fsdp", tmp_path, 6)
    assert [step.number for step in list_steps(tmp_path) if step.whole] == [5, 6]


def save_again_and_go_on(run: Path) -> list[bool]:
    """Save steps 6 and 7 of a run that goes on without a checkpoint; rank 1 cannot write the first."""
    state, saved = make_state("fsdp", 6), []
    with Checkpointer(run, on_save_error="warn") as checkpointer:
        for state.step in (6, 7):
            if dist.get_rank() == 1:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                limit = 1_000_000 if state.step == 6 else resource.RLIM_INFINITY
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            saved.append(checkpointer.save(state) is not None)
    return saved


def test_a_run_may_go_on_after_a_save_that_failed_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with World(2) as world:
        assert world.run(save_again_and_go_on, tmp_path) == [[False, True]] * 2
    assert [step.number for step in list_steps(tmp_path)] == [7]
    assert "step 6 is not saved" in capfd.readouterr().out


def save_what_differs(run: Path, what: str) -> list[str]:
    """Save with something that is not the same on rank 1."""
    state, step = make_state("fsdp", 6), 6
    if dist.get_rank() == 1:
        if what == "replica":
            state.optimizer.state[state.model.few.bias]["step"] += 1
        elif what == "tensor":
            state.model.register_buffer("count", torch.zeros(2))
        elif what == "state":
            state.optimizer.param_groups[0]["lr"] = 0.5
        elif what == "step":
            step = 7
        elif what == "dtype":
            state.model.register_buffer("count", torch.zeros(2, dtype=torch.complex128))
    limit = 1000 + (dist.get_rank() if what == "limit" else 0)
    try:
        save(run, step, state.contents(), max_file_bytes=limit)
    except SaveError as error:
        return [type(error).__name__, str(error).partition(": ")[2]]
    return []


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("replica", ReplicaMismatch, "step::few.bias"),
        ("tensor", SaveError, "model count"),
        ("state", SaveError, "optimizer"),
        ("step", SaveError, "step"),
        ("dtype", SaveError, "complex128"),
        ("limit", SaveError, "max_file_bytes"),
    ],
)
def test_ranks_that_mean_different_steps_are_told_what_differs(
    what: str, kind: type[SaveError], words: str, tmp_path: Path
) -> None:
    with World(2) as world:
        told = world.run(save_what_differs, tmp_path, what)
    assert told[0] == told[1]
    assert told[0][0] == kind.__name__
    assert words in told[0][1]
    assert "rank 1" in told[0][1]
    assert not list(tmp_path.glob("*step*"))
