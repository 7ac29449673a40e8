"""Addresses in object stores, and a step that is pushed to one in this process's memory; over HTTP: libraries/."""

import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from obstore.store import MemoryStore
from steps_made_by_hand import make_step

from ckptlab.checkpoint import Contents, load
from ckptlab.errors import CorruptError, FormatError, StepError, UsageError
from ckptlab.resume import Checkpointer
from ckptlab.steps import list_steps, verify
from ckptlab.steps.housekeeping import set_aside
from ckptlab.steps.steps import find_step, read_step
from ckptlab.storage import ObjectPath, place, store
from ckptlab.storage.object_path import Head
from ckptlab.storage.objects import Bucket
from ckptlab.tiers import push

MODEL_FILE = "model/model-00001-of-00001.safetensors"


@pytest.fixture
def there() -> ObjectPath:
    """A run in an empty store."""
    return ObjectPath("s3://bucket", "runs/mine", Bucket("s3://bucket", MemoryStore()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/runs/mine", "s3://bucket/runs/mine"),
        ("s3://bucket/runs/mine/", "s3://bucket/runs/mine"),
        ("s3://bucket", "s3://bucket"),
        ("runs/mine", "runs/mine"),
    ],
)
def test_an_address_is_a_path_of_its_own(text: str, expected: str) -> None:
    path = place(text)
    assert str(path) == expected
    assert path == place(text)
    step = path / "step-00000040"
    assert (step.name, step.parent) == ("step-00000040", path)
    assert hash(step) == hash(place(expected) / "step-00000040")


@pytest.mark.parametrize(
    "text", ["gs://bucket/a", "s3://", "s3://key:secret@bucket/a", "s3://bucket/a/../b", "s3://bucket/a//b", "s3://Bucket/a"]
)
def test_an_address_that_is_none_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="s3://bucket/runs/mine") as raised:
        place(text)
    assert "secret" not in str(raised.value)


def test_a_run_in_a_store_is_refused_for_training_and_no_directory_of_that_name_is_made(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="ckptlab push"):
        Checkpointer("s3://bucket/runs/mine")
    assert not list(tmp_path.iterdir())


def test_without_obstore_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['obstore'] = None; from ckptlab.cli.main import main; main()"
    ran = subprocess.run([sys.executable, "-c", code, "ls", "s3://bucket/a"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "pip install obstore" in ran.stderr


def test_a_store_answers_as_a_disk_does(tmp_path: Path, there: ObjectPath) -> None:
    on_disk = make_step(tmp_path, 40, cut_dim=0)
    in_store = push(on_disk, there).path
    for name in ("", "pieces", "nothing", MODEL_FILE, "state.json"):
        one, other = (path / name if name else path for path in (on_disk, in_store))
        assert store.size_of(one) == store.size_of(other)
        assert store.exists_directory(one) == store.exists_directory(other)
        assert store.exists(one) == store.exists(other)
        if store.exists_directory(one):
            assert store.list_names(one) == store.list_names(other)
    for path in (on_disk / "state.json", in_store / "state.json"):
        data = (on_disk / "state.json").read_bytes()
        assert store.read_file(path, 1000) == data
        with pytest.raises(FormatError, match="at most 9"):
            store.read_file(path, 9)
        with store.open_to_read(path) as file, pytest.raises(FormatError, match=f"{len(data) - 1} to {len(data) + 4}"):
            store.read_into(file, len(data) - 1, memoryview(bytearray(5)))
        with pytest.raises(FileNotFoundError, match="nothing"):
            store.read_file(path.parent / "nothing", 9)
    assert [step.whole for step in list_steps(there)] == [True]
    with pytest.raises(StepError, match="nothing is renamed there"):
        set_aside(in_store, "bad")


def test_a_bit_that_flipped_on_the_disk_is_not_spread(tmp_path: Path, there: ObjectPath) -> None:
    step = make_step(tmp_path, 40)
    data = bytearray((step / MODEL_FILE).read_bytes())
    data[-1] ^= 1
    (step / MODEL_FILE).write_bytes(data)
    with pytest.raises(CorruptError, match=f"{MODEL_FILE} bytes .* tensors in it: proj.weight"):
        push(step, there)
    assert store.size_of(there / step.name / MODEL_FILE) is None
    assert not read_step(there / step.name).whole
    data[-1] ^= 1
    (step / MODEL_FILE).write_bytes(data)
    assert MODEL_FILE in push(step, there).sent
    assert not list(verify(find_step(there / step.name)))


def test_only_a_whole_step_on_disk_is_pushed_and_only_to_a_store(tmp_path: Path, there: ObjectPath) -> None:
    step = make_step(tmp_path, 40)
    for source, target in ((step, str(tmp_path / "elsewhere")), (push(step, there).path, there)):
        with pytest.raises(UsageError, match="a step on disk is pushed to an address"):
            push(source, target)
    (step / "state.json").unlink()
    with pytest.raises(StepError, match="only whole steps are pushed"):
        push(step, there)


def test_what_another_push_left_half_done_under_this_number_is_replaced_or_deleted(tmp_path: Path, there: ObjectPath) -> None:
    step = make_step(tmp_path, 40, state={"epoch": 2})
    left = b'{"epoch": 1}'
    for name in ("state.json", "ranks/rank-00007.json"):  # more ranks had saved it
        there.store.put((there / step.name / name).key, iter([left]), Head(len(left), zlib.crc32(left)))
    pushed = push(step, there)
    assert "state.json" in pushed.sent
    assert not list(verify(find_step(pushed.path)))
    loaded = load(pushed.path, lambda manifest, state: Contents(model={}), strict=False)
    assert loaded.state == {"epoch": 2}
