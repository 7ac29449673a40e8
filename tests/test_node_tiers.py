"""Steps in the memory or on the disks of the nodes: two ranks to a node, two nodes played in separate folders."""

import os
import re
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from jobs import train, trained
from states import local_bytes, make_state

from ckptlab.checkpoint import Contents, load
from ckptlab.checkpoint.collectives import Group, Outcome
from ckptlab.checkpoint.phases import PHASES
from ckptlab.errors import CorruptError, RankLost, RankRaised, SaveError, UsageError
from ckptlab.ranks import World
from ckptlab.steps import compare, rollback, verify
from ckptlab.steps.events import read_events
from ckptlab.steps.steps import read_step
from ckptlab.tiers import Local, Memory, NodeTier

STEP = "step-{:08d}"


def on_a_node() -> Group:
    """Play ranks 0 and 1 as one node, 2 and 3 as another one."""
    os.environ["CKPTLAB_NODE"] = f"node{dist.get_rank() // 2}"
    return Group.of_world()


def save_steps(tier: NodeTier, *steps: int) -> list[Path]:
    group = on_a_node()
    return [tier.save(step, make_state("fsdp", step).contents(), group) for step in steps]


def restore(tier: NodeTier, kind: str = "fsdp", whole: bool = False) -> dict[str, Any]:
    """Restore the newest step that can be, as a run does; say which, which were refused, and whether it is what was saved."""
    group, refused = on_a_node(), {}
    for step, fault in tier.steps(group):
        state = make_state(kind, 0)
        try:
            path = tier.prepare(step, group, None if whole else state.wanted) if fault is None else None
        except CorruptError as error:
            fault, path = str(error), None
        if path is None:
            refused[step] = fault
            continue
        state.accept(load(path, state.wanted, verify_first=False, need_whole=whole, group=group))
        tier.delete_later(step, group)
        found, expected = state.contents(), make_state(kind, step).contents()
        pairs = [(found.model, expected.model), (found.optim, expected.optim)]
        same = all(local_bytes(one) == local_bytes(other) for one, other in pairs)
        return {"step": step, "same": same and state.step == step, "refused": refused}
    return {"step": None, "refused": refused}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_node_that_is_lost_comes_back_bitwise_from_its_partners(tmp_path: Path) -> None:
    tier = Memory(tmp_path, every=1, keep_last=2)
    with World(4) as world:
        world.run(save_steps, tier, 5, 6, 7)
        assert sorted(path.name for path in tmp_path.glob("node1/*")) == [STEP.format(6), STEP.format(7)]
        assert files(tmp_path / "node0") == files(tmp_path / "node1"), "of two nodes each has all"
        shutil.rmtree(tmp_path / "node0")
        world.restart()
        assert world.run(restore, tier) == [{"step": 7, "same": True, "refused": {}}] * 4
        assert files(tmp_path / "node0" / STEP.format(7)) < files(tmp_path / "node1" / STEP.format(7)), "only what is needed"
        world.run(save_steps, tier, 8)
        shutil.rmtree(tmp_path / "node1")
    with World(3) as world:  # the second node has one rank now
        assert world.run(restore, tier, "replicated", True) == [{"step": 8, "same": True, "refused": {}}] * 3
        world.run(save_steps, tier, 9)
        shutil.rmtree(tmp_path / "node1")
        assert world.run(restore, tier) == [{"step": 9, "same": True, "refused": {}}] * 3


@pytest.mark.parametrize("background", [None, "wait"])
def test_a_run_that_loses_a_node_goes_on_from_memory_and_ends_bitwise_like_the_unbroken_one(
    background: Literal["wait"] | None, tmp_path: Path
) -> None:
    run, memory, unbroken = tmp_path / "run", Memory(tmp_path / "memory", every=2), tmp_path / "unbroken"
    with World(4) as world:
        world.run(train, unbroken, 12, every=12)
        with pytest.raises(RankLost):
            world.run(train, run, 12, every=5, background=background, tiers=[memory], kill_at=9)
        assert list(load_events(run)) == []
        shutil.rmtree(memory.directory / "node0")
        world.restart()
        world.run(train, run, 11, every=5, background=background, tiers=[memory])
        for damaged in memory.directory.glob(f"*/{STEP.format(10)}/ranks/*-00002.*"):
            damage(damaged)
        world.run(train, run, 12, every=12, background=background, tiers=[memory])
    (first, where), second = load_events(run)
    assert (first in ((8,) if background is None else (6, 8)), where) == (True, str(memory.directory))
    assert second == (10, "the run")
    assert list(verify(read_step(run / STEP.format(12)))) == []
    assert list(compare(read_step(run / STEP.format(12)), read_step(unbroken / STEP.format(12)))) == []
    assert [trained(run, rank) for rank in range(4)] == [trained(unbroken, rank) for rank in range(4)]
    saved = [(event["step"], "tier" in event) for event in read_events(run) if event.get("outcome") == "committed"]
    assert saved == [(2, True), (4, True), (5, False), (6, True), (8, True), (10, True), (10, False), (12, True), (12, False)]
    stalls = [event["stall"] for event in read_events(run) if event["event"] == "save" and event["step"] == 12]
    assert (stalls[1] == 0.0) == (background is not None), "training waits once for a copy, and for each place without one"


def test_a_rollback_holds_for_the_nodes_a_tier_that_fails_does_not_fail_the_run_and_another_runs_tier_is_refused(
    tmp_path: Path,
) -> None:
    run, memory = tmp_path / "run", Memory(tmp_path / "memory", every=1)
    (memory.directory / "node0" / STEP.format(4)).mkdir(parents=True)  # in the way of the tier's step
    with World(2) as world:
        world.run(train, run, 5, every=2, tiers=[memory])
        told = {(e["step"], "tier" in e): e["outcome"] for e in read_events(run) if e["event"] == "save"}
        assert (told[4, True], told[4, False], told[5, True]) == ("failed", "committed", "committed")
        assert memory.directory.joinpath("node1").stat().st_mode & 0o777 == 0o700
        rollback(run, 4)
        world.run(train, run, 5, every=2, tiers=[memory])
        assert list(load_events(run)) == [(4, "the run")]
        rollback(run, 2)
        world.run(train, run, 3, every=2, tiers=[memory])
        assert list(load_events(run))[1:] == [(2, "the run")]
        world.run(train, run, 4, every=2, tiers=[memory])
        assert list(load_events(run))[2:] == [(3, str(memory.directory))], "a rollback is over when the run goes on"
        with pytest.raises(RankRaised, match=r"memory/node0 has steps of another run.*remove the folder"):
            world.run(train, tmp_path / "other", 5, every=2, tiers=[memory])


def load_events(run: Path) -> Iterator[tuple[Any, Any]]:
    """Yield which step was loaded, and from where."""
    return ((event["step"], event.get("tier", "the run")) for event in read_events(run) if event["event"] == "load")


def plain(step: int) -> Contents:
    """Tensors of which every rank has all, and each writes a part; and what belongs to each rank alone."""
    tensors = {f"w{number}": torch.full((300, 301), step + number / 8) for number in range(4)}
    return Contents(model=tensors, state={"step": step}, rank_state={"rank": dist.get_rank()})


def save_plain(tier: NodeTier, step: int) -> None:
    tier.save(step, plain(step), on_a_node())


def restore_plain(tier: NodeTier) -> tuple[int, bool, dict[int, str | None]]:
    """Restore the newest step without a fault: its number, whether it is what was saved, and what is wrong with newer ones."""
    group = on_a_node()
    found = dict(tier.steps(group))
    step = next(step for step, fault in found.items() if fault is None)
    filled = plain(0)
    load(tier.prepare(step, group, lambda *_: filled), lambda *_: filled, need_whole=False, group=group)
    tier.delete_later(step, group)
    same = local_bytes(filled.model) == local_bytes(plain(step).model)
    return step, same, {number: fault for number, fault in found.items() if fault is not None}


def save_and_die(tier: NodeTier, step: int, phase: str, victim: int) -> None:
    """Save; the victim kills itself after `phase`, every other rank writes down what its save came to."""
    group, rank, told = on_a_node(), dist.get_rank(), "saved"

    def on_phase(done: str) -> None:
        if done == phase and rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        tier.save(step, plain(step), group, on_phase=on_phase)
    except SaveError as error:
        told = f"{error.committed} {error.lost}"
    (tier.directory / f"{step}-{rank}.told").write_text(told)


def test_a_rank_killed_after_a_phase_leaves_the_old_step_or_the_new_one_on_all_nodes(tmp_path: Path) -> None:
    tier, newest = Memory(tmp_path, every=1), 1
    with World(4) as world:
        world.run(save_plain, tier, newest)
        for number, phase in enumerate(PHASES):
            step, victim = newest + 1, number % 4
            with pytest.raises(RankLost):
                world.run(save_and_die, tier, step, phase, victim)
            for survivor in {0, 1, 2, 3} - {victim}:
                told = (tmp_path / f"{step}-{survivor}.told").read_text()
                expected = "saved" if phase in ("commit", "retire") else f"{None if phase == 'manifest' else False} ({victim},)"
                assert told == expected, (phase, survivor)
            newest = step if number >= PHASES.index("manifest") else newest  # then every node has all and may commit
            world.restart()
            assert world.run(restore_plain, tier) == [(newest, True, {})] * 4, phase
        world.run(save_plain, tier, 90)
        assert sorted(path.name for path in tmp_path.glob("node*/*")) == [STEP.format(90)] * 2, "nothing else is left"
        alone = Memory(tmp_path / "alone", every=1, partner=False)
        world.run(save_plain, alone, 5)
        with pytest.raises(RankLost):
            world.run(save_and_die, alone, 6, "manifest", 2)  # the first rank of its node, which would have renamed
        world.restart()
        assert world.run(restore_plain, alone) == [(5, True, {6: "4 of its 9 files are on no node"})] * 4
        assert not list(tmp_path.glob(f"alone/*/{STEP.format(6)}"))


def save_with_a_limit(tier: NodeTier, step: int, from_phase: str, victim: int) -> str:
    """Save while the victim may not write beyond 1 MB of a file after a phase."""
    group = on_a_node()

    def on_phase(done: str) -> None:
        if done == from_phase and dist.get_rank() == victim:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))

    try:
        tier.save(step, make_state("fsdp", step).contents(), group, on_phase=on_phase)
    except SaveError as error:
        return f"{error.committed} {error}"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return ""


def test_a_node_without_space_for_its_own_or_its_partners_files_is_every_ranks_save_error(tmp_path: Path) -> None:
    tier = Memory(tmp_path, every=1)
    with World(4) as world:
        world.run(save_steps, tier, 5)
        for phase in ("plan", "agree"):  # before own files are written; before the partner's are
            told = world.run(save_with_a_limit, tier, 6, phase, 3)
            assert all(f"rank 3: OSError: [Errno 27] File too large: '{tmp_path}/node1/.tmp-" in line for line in told), told
            assert [line.split()[0] for line in told] == ["False"] * 4, phase
            assert sorted(path.name for path in tmp_path.glob("node*/*")) == [STEP.format(5)] * 2
        assert world.run(restore, tier) == [{"step": 5, "same": True, "refused": {}}] * 4
        world.run(save_steps, tier, 6)
        assert world.run(restore, tier)[0]["step"] == 6


def save_with_damage(tier: NodeTier, step: int) -> str:
    """Save; what rank 1 wrote is damaged before it goes to its partner."""
    group = on_a_node()

    def on_phase(done: str) -> None:
        if done == "agree" and dist.get_rank() == 1:
            (path,) = tier.directory.glob(f"node0/.tmp-{STEP.format(step)}-*/pieces/rank-00001.safetensors")
            damage(path)

    try:
        tier.save(step, make_state("fsdp", step).contents(), group, on_phase=on_phase)
    except SaveError as error:
        return f"{error.committed} {error}"
    return ""


def save_into_the_way(tier: NodeTier, step: int) -> str:
    """Save; before the nodes commit, something comes in the way on the second one."""
    group = on_a_node()

    def on_phase(done: str) -> None:
        if done == "manifest" and dist.get_rank() == 3:
            (tier.directory / "node1" / STEP.format(step)).touch()
        if done == "manifest":
            group.agree(Outcome())  # rank 2, which will rename, waits for it

    try:
        tier.save(step, make_state("fsdp", step).contents(), group, on_phase=on_phase)
    except SaveError as error:
        return f"{error.committed} {error}"
    return ""


def test_damage_on_the_way_to_a_partner_and_a_node_that_cannot_commit_leave_all_nodes_as_they_were(tmp_path: Path) -> None:
    tier = Memory(tmp_path, every=1)
    with World(4) as world:
        world.run(save_steps, tier, 5)
        told = world.run(save_with_damage, tier, 6)
        assert all(re.search(r"^False .*rank 3: pieces/rank-00001.safetensors bytes .*as rank 1 sent it", t) for t in told), (
            told
        )
        told = world.run(save_into_the_way, tier, 6)
        assert all(line.startswith("False ") and f"File exists: '{tmp_path}/node1/" in line for line in told), told
        (tmp_path / "node1" / STEP.format(6)).unlink()
        assert sorted(path.name for path in tmp_path.glob("node*/*")) == [STEP.format(5)] * 2


def save_and_tell_what_was_synced(tier: NodeTier) -> tuple[list[str], list[str]]:
    """Save, each rank a node; return the files on this node, and those of them that were durable before the step was there."""
    os.environ["CKPTLAB_NODE"] = f"node{dist.get_rank()}"
    synced, fsync = set(), os.fsync

    def recording(fd: int) -> None:
        fsync(fd)
        if ".tmp-" in (path := os.readlink(f"/proc/self/fd/{fd}")):
            synced.add(path.partition(".tmp-")[2].partition("/")[2])

    os.fsync = recording
    try:
        path = tier.save(1, plain(1), Group.of_world())
    finally:
        os.fsync = fsync
    return sorted(files(path)), sorted(synced)


def test_a_disk_has_its_own_and_its_partners_files_for_sure_and_memory_does_not_wait_for_that(tmp_path: Path) -> None:
    with World(2) as world:
        for there, synced in world.run(save_and_tell_what_was_synced, Local(tmp_path / "disk", every=1, partner=True)):
            assert {*there, "", "pieces", "ranks"} <= set(synced)
        for there, synced in world.run(save_and_tell_what_was_synced, Memory(tmp_path / "memory", every=1)):
            assert len(there) > 4
            assert not any(path.endswith(".safetensors") for path in synced)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_damaged_file_is_taken_from_the_partner_and_the_step_before_when_both_copies_are(tmp_path: Path) -> None:
    tier, piece = Memory(tmp_path, every=1, keep_last=2), "pieces/rank-00003.safetensors"
    with World(4) as world:
        world.run(save_steps, tier, 5, 6)
        paths = [tmp_path / node / STEP.format(6) / piece for node in ("node0", "node1")]
        good = paths[1].read_bytes()
        damage(paths[1])
        assert world.run(restore, tier) == [{"step": 6, "same": True, "refused": {}}] * 4
        assert paths[1].read_bytes() == good
        for path in paths:
            damage(path)
        told = world.run(restore, tier)
        assert [(answer["step"], answer["same"]) for answer in told] == [(5, True)] * 4
        assert all(re.search(rf"{piece} bytes .*tensors in it: .*blocks.weight", a["refused"][6]) for a in told), told
        assert not list(tmp_path.glob(f"node*/{STEP.format(6)}")), "training will save it again"


def save_another(tier: NodeTier, step: int) -> None:
    group = on_a_node()
    tier.save(step, make_state("fsdp", step + 1).contents(), group)


def test_without_a_partner_a_lost_node_or_one_of_another_past_leaves_no_step_and_says_why(tmp_path: Path) -> None:
    tier, other = Local(tmp_path / "own", every=1), Local(tmp_path / "other", every=1)
    with World(4) as world:
        world.run(save_steps, tier, 5)
        world.run(save_another, other, 5)
        assert files(tier.directory / "node0") & files(tier.directory / "node1") == {
            f"{STEP.format(5)}/{file}" for file in ("manifest.json", "state.json")
        }
        assert world.run(restore, tier) == [{"step": 5, "same": True, "refused": {}}] * 4, "what lies on other nodes is passed"
        shutil.rmtree(tier.directory / "node1")
        told = world.run(restore, tier)
        assert told == [{"step": None, "refused": {5: "6 of its 13 files are on no node"}}] * 4
        shutil.copytree(other.directory / "node1", tier.directory / "node1")
        told = world.run(restore, tier)
        assert told == [{"step": None, "refused": {5: "nodes have different manifests of it: it was saved more than once"}}] * 4


def test_a_tier_that_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"every": 0}, {"keep_last": 0}):
        with pytest.raises(UsageError, match="at least 1"):
            Memory(tmp_path, **{"every": 1, **wrong})
    monkeypatch.setenv("CKPTLAB_NODE", "../outside")
    with pytest.raises(SaveError, match=r"the node is called '../outside': .*set CKPTLAB_NODE"):
        Memory(tmp_path / "tier", every=1).save(1, Contents(model={}), Group.of_world())
    assert not list(tmp_path.iterdir())
