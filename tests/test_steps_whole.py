import os
import shutil
from pathlib import Path

import pytest
from steps_made_by_hand import make_step

from ckptlab.errors import StepError
from ckptlab.steps import list_steps, newest_step, verify
from ckptlab.steps.steps import find_step, find_steps, read_step

MODEL_FILE = "model/model-00001-of-00001.safetensors"


def test_a_step_with_all_its_files_is_whole(tmp_path: Path) -> None:
    path = make_step(tmp_path, 40)
    step = read_step(path)
    assert (step.number, step.whole, step.fault) == (40, True, None)
    files = [file for file in path.rglob("*") if file.is_file() and file.name != "manifest.json"]
    assert step.num_bytes == sum(file.stat().st_size for file in files)


def remove(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def link(path: Path) -> None:
    path.rename(path.parents[2] / "outside")
    path.symlink_to(path.parents[2] / "outside")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link_folder(path: Path) -> None:
    path.parent.rename(path.parents[2] / "outside")
    path.parent.symlink_to(path.parents[2] / "outside")


@pytest.mark.parametrize("damage", [remove, shorten, lengthen, link, fifo, link_folder])
def test_a_step_is_not_whole_when_a_file_is_not_there_as_it_was_written(tmp_path: Path, damage) -> None:
    path = make_step(tmp_path, 40)
    damage(path / MODEL_FILE)
    step = read_step(path)
    assert not step.whole
    assert step.fault is not None
    assert step.fault.startswith(f"{MODEL_FILE}: ")
    assert any(fault.file == MODEL_FILE and "proj.weight" in fault.tensors for fault in verify(step))


def no_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def torn_manifest(path: Path) -> None:
    os.truncate(path / "manifest.json", (path / "manifest.json").stat().st_size // 2)


def huge_manifest(path: Path) -> None:
    os.truncate(path / "manifest.json", (64 << 20) + 1)


def fifo_manifest(path: Path) -> None:
    fifo(path / "manifest.json")


def file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("a file")


def link_instead(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def other_name(path: Path) -> None:
    path.rename(path.with_name("step-00000050"))
    make_step(path.parent, 60).rename(path)


@pytest.mark.parametrize(
    "damage", [no_manifest, torn_manifest, huge_manifest, fifo_manifest, file_instead, link_instead, other_name]
)
def test_a_directory_without_a_manifest_of_its_own_is_no_whole_step(tmp_path: Path, damage) -> None:
    path = make_step(tmp_path, 40)
    damage(path)
    step = read_step(path)
    assert (step.manifest, step.whole) == (None, False)
    assert [(fault.file, fault.what) for fault in verify(step)] == [("manifest.json", step.fault)]


def test_a_manifest_that_names_a_file_outside_the_step_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"{}")
    path = make_step(tmp_path, 40, more_files={"model/../../secret": b"{}"})
    fault = read_step(path).fault
    assert fault is not None
    assert "file name 'model/../../secret'" in fault


def test_the_newest_step_is_the_newest_whole_one_and_asides_are_no_steps(tmp_path: Path) -> None:
    for number in (5, 40, 900_000_000, 1_000_000_000):
        make_step(tmp_path, number)
    no_manifest(make_step(tmp_path, 60))
    for name in (".tmp-step-00000070-ab", ".bad-step-00000080-ab", ".trash-step-00000090-ab", "step-99", "STEP-00000095"):
        shutil.copytree(tmp_path / "step-00000040", tmp_path / name)
    assert [step.number for step in list_steps(tmp_path) if step.whole] == [5, 40, 900_000_000, 1_000_000_000]
    assert [step.number for step in list_steps(tmp_path) if not step.whole] == [60]
    for number in (900_000_000, 1_000_000_000):
        remove(tmp_path / f"step-{number}" / MODEL_FILE)
    newest = newest_step(tmp_path)
    assert newest is not None
    assert newest.number == 40


def test_a_run_without_steps_has_no_newest_and_a_missing_run_is_an_error(tmp_path: Path) -> None:
    assert newest_step(tmp_path) is None
    with pytest.raises(StepError, match="nowhere is not a directory"):
        list_steps(tmp_path / "nowhere")


def test_a_step_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    make_step(tmp_path, 20)
    make_step(tmp_path, 40)
    with pytest.raises(StepError, match=r"step-00000020, step-00000040; did you mean .*step-00000040\?"):
        find_step(tmp_path / "step-0000040")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(StepError, match=r"is neither a run nor a step: .*found notes\.txt"):
        find_steps(tmp_path / "other")
