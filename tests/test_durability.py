"""A step is durable when `save` returns: what was synced, in which order, as the operating system was asked for it."""

import os
from pathlib import Path

import pytest
import torch

from ckptlab.checkpoint import Contents, save


def test_files_then_the_manifest_then_the_directories_then_the_rename_then_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def recording_fsync(fd: int) -> None:
        fsync(fd)
        asked.append(("fsync", os.readlink(f"/proc/self/fd/{fd}")))

    def recording_rename(source: str | Path, target: str | Path) -> None:
        rename(source, target)
        asked.append(("rename", str(target)))

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "rename", recording_rename)
    contents = Contents(
        model={"w": torch.arange(6.0)},
        optim={"exp_avg::w": torch.arange(6.0)},
        state={"step": 1},
        rank_tensors={"rng::torch": torch.get_rng_state()},
        rank_state={"rng": 1},
    )
    step = save(tmp_path / "new" / "run", 1, contents)
    monkeypatch.undo()

    run = step.parent
    assert [path for what, path in asked if what == "rename"] == [str(step)]
    renamed = asked.index(("rename", str(step)))
    before = [path.partition(".tmp-")[2].partition("/")[2] for what, path in asked[:renamed] if ".tmp-" in path]
    files = sorted(path.relative_to(step).as_posix() for path in step.rglob("*") if path.is_file())
    assert sorted(before[: len(files)]) == files, "a file of the step was not made durable, or too late"
    assert before[len(files) - 1] == "manifest.json"
    assert {"", "model", "optim", "ranks"} <= set(before[len(files) :]), "a directory of the step was not made durable"
    assert ("fsync", str(run)) in asked[renamed:], "the rename was not made durable"
    assert {("fsync", str(tmp_path)), ("fsync", str(run.parent))} <= set(asked[:renamed]), "a new directory's parent was not"
