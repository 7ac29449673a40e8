"""Steps that go into a store behind the training, and come back from it; a bucket in memory that makes any trouble."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from obstore.store import MemoryStore
from processes import until
from steps_made_by_hand import BLOCK_BYTES, make_step
from torch import nn

from ckptlab.errors import ResumeError, StoreError
from ckptlab.resume import Checkpointer, TrainState
from ckptlab.steps import list_steps, rollback, verify
from ckptlab.steps.events import read_events
from ckptlab.steps.housekeeping import list_asides
from ckptlab.steps.steps import find_step
from ckptlab.steps.verified import StepReader
from ckptlab.storage import ObjectPath
from ckptlab.storage.objects import Bucket
from ckptlab.tiers import ObjectStore, push

MODEL_FILE = "model/model-00001-of-00001.safetensors"


class Troubled:
    """A bucket that remembers what it was asked, and before it does that lets `trouble` happen."""

    def __init__(self) -> None:
        self.bucket = Bucket("s3://bucket", MemoryStore())
        self.trouble: Callable[[str, str], object] = lambda what, key: None
        self.asked: list[tuple[str, str]] = []

    def __getattr__(self, what: str) -> Callable[..., Any]:
        def ask(key: str | list[str], *rest: object) -> object:
            for one in [key] if isinstance(key, str) else key:
                self.asked.append((what, one.removeprefix("runs/mine/")))
                self.trouble(*self.asked[-1])
            return getattr(self.bucket, what)(key, *rest)

        return ask


@pytest.fixture
def bucket() -> Troubled:
    return Troubled()


@pytest.fixture
def there(bucket: Troubled) -> ObjectPath:
    return ObjectPath("s3://bucket", "runs/mine", bucket)


def state_at(step: int) -> TrainState:
    """Return a state of which every value tells the step."""
    model = nn.Linear(4, 4)
    nn.init.constant_(model.weight, step)
    nn.init.constant_(model.bias, step)
    state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()))
    state.step = step
    return state


def save(checkpointer: Checkpointer, *steps: int) -> None:
    for step in steps:
        checkpointer.save(state_at(step))


def resumed(run: Path, *tiers: ObjectStore) -> int:
    """Resume, and return the step that every value and the number tell."""
    state = state_at(0)
    with Checkpointer(run, tiers=tiers) as checkpointer:
        step = checkpointer.resume(state)
    assert {int(value) for tensor in state.model.parameters() for value in tensor.flatten()} == {step} == {state.step}
    return step


def whole(run: Path | ObjectPath) -> list[int]:
    """Return the numbers of the steps, of which each is as it was written, or is none."""
    steps = [step for step in list_steps(run) if not step.torn]
    assert [str(fault) for step in steps for fault in verify(step)] == []
    return [step.number for step in steps]


def told(run: Path, *kinds: str) -> list[tuple[object, ...]]:
    return [(event["event"], event["step"], event["outcome"]) for event in read_events(run) if event["event"] in kinds]


def until_told(run: Path, event: tuple[str, int, str]) -> None:
    assert until(lambda: event in told(run, event[0]), 60), told(run, event[0])


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_the_newest_step_waits_for_the_one_under_way_and_both_stay_on_the_disk(
    tmp_path: Path, bucket: Troubled, there: ObjectPath
) -> None:
    reached, is_open = threading.Event(), threading.Event()

    def hang(what: str, key: str) -> None:
        if what == "put" and key.startswith("step-00000010/"):
            reached.set()
            assert is_open.wait(60)

    bucket.trouble = hang
    with Checkpointer(tmp_path, keep_last=1, background="wait", tiers=[ObjectStore(there, every=10)]) as checkpointer:
        save(checkpointer, 10)
        checkpointer.wait()
        assert reached.wait(60)
        save(checkpointer, 20, 30, 35, 40)
        checkpointer.wait()
        assert whole(tmp_path) == [10, 30, 40], "what is sent, what waited when 40 was saved, and the newest"
        is_open.set()
    assert whole(there) == [10, 40]
    assert told(tmp_path, "push") == [
        ("push", 20, "skipped"),
        ("push", 30, "skipped"),
        ("push", 10, "committed"),
        ("push", 40, "committed"),
    ]
    (sent,) = [event for event in read_events(tmp_path) if event["event"] == "push" and event["step"] == 40]
    assert sent["tier"] == "s3://bucket/runs/mine"
    assert sent["bytes"] == list_steps(there)[-1].num_bytes
    with Checkpointer(tmp_path, keep_last=1) as checkpointer:
        save(checkpointer, 50)
    assert whole(tmp_path) == [50]


def test_a_store_that_fails_stops_nothing_and_the_step_is_sent_after_the_next_save(
    tmp_path: Path, bucket: Troubled, there: ObjectPath, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(what: str, key: str) -> None:
        raise StoreError("the store is away")

    bucket.trouble = refuse
    with Checkpointer(tmp_path, keep_last=1, tiers=[ObjectStore(there, every=10)]) as checkpointer:
        save(checkpointer, 10)
        until_told(tmp_path, ("push", 10, "failed"))
        assert "step 10 is not in s3://bucket/runs/mine: the store is away; it is tried again" in caplog.text
        bucket.trouble = lambda what, key: None
        save(checkpointer, 15)
    assert whole(there) == [10]
    assert whole(tmp_path) == [10, 15]


def test_a_store_keeps_the_newest_steps_and_a_deletion_that_breaks_off_leaves_no_step(
    tmp_path: Path, bucket: Troubled, there: ObjectPath
) -> None:
    def die(what: str, key: str) -> None:
        if what == "delete" and key.endswith(MODEL_FILE):
            raise StoreError("killed in the middle")

    others = [there.parent / "other" / "step-00000010", there / "records"]
    for path in others:
        bucket.create((path / "manifest.json").key, b"of somebody else")
    tiers = [ObjectStore(there, keep_last=2)]
    with Checkpointer(tmp_path, keep_last=1, tiers=tiers) as checkpointer:
        for step in (10, 20):
            save(checkpointer, step)
            until_told(tmp_path, ("push", step, "committed"))
        bucket.trouble = die
        save(checkpointer, 30)
    assert whole(there) == [20, 30]
    assert [step.number for step in list_steps(there) if step.torn] == [10]
    order = [(what, key) for what, key in bucket.asked if key.endswith("manifest.json") and what in ("create", "delete")]
    assert order[-2:] == [("create", "step-00000030/manifest.json"), ("delete", "step-00000010/manifest.json")]
    bucket.trouble = lambda what, key: None
    with Checkpointer(tmp_path, keep_last=1, tiers=tiers) as checkpointer:
        save(checkpointer, 40)
    assert [step.number for step in list_steps(there)] == whole(there) == [30, 40]
    assert whole(tmp_path) == [40]
    assert all(bucket.head((path / "manifest.json").key) for path in others)
    deleted = [event for event in read_events(tmp_path) if event["event"] == "delete" and "tier" in event]
    assert [(event["step"], event["rule"]) for event in deleted] == [(20, "keep_last=2"), (10, "keep_last=2")]


def test_a_step_is_taken_from_the_nearest_place_that_has_it_whole(
    tmp_path: Path, bucket: Troubled, there: ObjectPath, caplog: pytest.LogCaptureFixture
) -> None:
    here, tier = tmp_path / "here", ObjectStore(there)
    with Checkpointer(here, keep_last=2, tiers=[tier]) as checkpointer:
        for step in (10, 20, 30):
            save(checkpointer, step)
            until_told(here, ("push", step, "committed"))

    def read_in_store() -> set[str]:
        return {key.partition("/")[0] for what, key in bucket.asked if what == "read" and key.endswith(MODEL_FILE)}

    bucket.asked.clear()
    assert resumed(here, tier) == 30
    assert read_in_store() == set()
    damage(here / "step-00000030" / MODEL_FILE)
    assert resumed(here, tier) == 30
    assert read_in_store() == {"step-00000030"}
    assert "step 30 was passed over" in caplog.text
    assert resumed(tmp_path / "new machine", tier) == 30
    (load,) = (event for event in read_events(tmp_path / "new machine") if event["event"] == "load")
    assert (load["step"], load["tier"]) == (30, "s3://bucket/runs/mine")
    with Checkpointer(behind := tmp_path / "behind") as checkpointer:
        save(checkpointer, 5)
    assert resumed(behind, tier) == 30
    assert told(behind, "push") == [], "what is older than the newest there is not sent"


def test_several_blocks_of_a_file_are_fetched_at_once(tmp_path: Path, bucket: Troubled, there: ObjectPath) -> None:
    step = find_step(push(make_step(tmp_path, 40), there).path)
    both = threading.Barrier(2)
    reads: list[str] = []

    def wait(what: str, key: str) -> None:
        if what == "read" and key.endswith(MODEL_FILE):
            reads.append(key)
            if len(reads) <= 2:
                both.wait(60)

    bucket.trouble = wait
    assert step.manifest is not None
    with StepReader(step.path, step.manifest) as reader:
        data = reader.read_whole(MODEL_FILE, 10_000)
    assert data == (tmp_path / "step-00000040" / MODEL_FILE).read_bytes()
    assert len(reads) == -(-len(data) // BLOCK_BYTES)


def test_a_step_of_the_store_that_was_passed_over_does_not_block_one_of_its_number(
    tmp_path: Path, bucket: Troubled, there: ObjectPath, capsys: pytest.CaptureFixture[str]
) -> None:
    tier = ObjectStore(there)
    with Checkpointer(tmp_path / "first", tiers=[tier]) as checkpointer:
        for step in (10, 20):
            save(checkpointer, step)
            until_told(tmp_path / "first", ("push", step, "committed"))
    key = (there / "step-00000020" / MODEL_FILE).key
    bucket.put(key, iter([bytes(bucket.head(key).num_bytes)]), bucket.head(key))
    with Checkpointer(second := tmp_path / "second", tiers=[tier]) as checkpointer:
        assert checkpointer.resume(state_at(0)) == 10
        save(checkpointer, 20)
    assert told(second, "push") == [("push", 20, "committed")]
    assert whole(there) == [10, 20]
    assert list(list_asides(there).values()) == ["bad"]


def test_what_a_rollback_has_undone_does_not_come_back_from_the_store(
    tmp_path: Path, bucket: Troubled, there: ObjectPath
) -> None:
    tier = ObjectStore(there)
    with Checkpointer(tmp_path, keep_last=1, keep_every=30, tiers=[tier]) as checkpointer:
        for step in (30, 40, 50):
            save(checkpointer, step)
            until_told(tmp_path, ("push", step, "committed"))
    assert whole(tmp_path) == [30, 50]
    rollback(tmp_path, 30)
    with Checkpointer(tmp_path, tiers=[tier]) as checkpointer:
        assert checkpointer.resume(state_at(0)) == 30
        save(checkpointer, 35)
    assert whole(there) == [30, 35]


def test_a_store_that_does_not_answer_is_gone_without_where_a_step_is_on_the_disk(
    tmp_path: Path, bucket: Troubled, there: ObjectPath, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(what: str, key: str) -> None:
        raise StoreError("the store is away")

    tier = ObjectStore(there)
    with Checkpointer(tmp_path / "here") as checkpointer:
        save(checkpointer, 10)
    bucket.trouble = refuse
    assert resumed(tmp_path / "here", tier) == 10
    assert "resumed from step 10; is there a newer one? the store is away" in caplog.text
    with pytest.raises(ResumeError, match=r"the store is away\); start again when that is known"):
        resumed(tmp_path / "new machine", tier)
    bucket.trouble = lambda what, key: None
    assert resumed(tmp_path / "new machine", tier) == 0
    assert resumed(tmp_path / "here", tier) == 10
    assert whole(there) == [10], "what an earlier process could not send"


def save_and_leave(run: Path) -> None:
    """Save a step, and end the program when a store has begun to take it slowly."""
    bucket, reached = Troubled(), threading.Event()

    def slow(what: str, key: str) -> None:
        if what == "put":
            reached.set()
            threading.Event().wait(0.5)

    bucket.trouble = slow
    there = ObjectPath("s3://bucket", "runs/mine", bucket)
    save(Checkpointer(run, tiers=[ObjectStore(there)]), 10)
    assert reached.wait(60)


def test_a_program_that_ends_without_close_breaks_off_and_the_next_one_sends_the_rest(
    tmp_path: Path, there: ObjectPath
) -> None:
    code = "import sys, test_drain; test_drain.save_and_leave(test_drain.Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parent, check=True)
    assert ran.stderr.startswith("step 10 is not in s3://bucket/runs/mine: the push was broken off; it is tried again")
    assert ran.stderr.count("\n") == 1
    assert told(tmp_path, "push") == [("push", 10, "failed")]
    assert resumed(tmp_path, ObjectStore(there)) == 10
    assert whole(there) == [10]


def test_an_error_in_the_block_does_not_wait_for_the_store(tmp_path: Path, bucket: Troubled, there: ObjectPath) -> None:
    reached, raising = threading.Event(), threading.Event()

    def hang(what: str, key: str) -> None:
        if what == "put":
            reached.set()
            assert raising.wait(60)

    bucket.trouble = hang

    def train() -> None:
        with Checkpointer(tmp_path, tiers=[ObjectStore(there)]) as checkpointer:
            save(checkpointer, 10)
            assert reached.wait(60)
            threading.Timer(0.5, raising.set).start()
            raise KeyError("of the block")

    with pytest.raises(KeyError, match="of the block"):
        train()
    assert told(tmp_path, "push") == [("push", 10, "failed")]
    assert not there.store.sizes(there.key).keys() & {"step-00000010/manifest.json"}
