"""Is it committed?

`run` is the directory of a run after crashes, copies and clumsy hands. Return the numbers of its committed and whole steps,
sorted. Such a step is a directory with a name of exactly `step-` and eight digits; in it is a `manifest.json` that can be
parsed, whose `step` is the number in the name; and each file under its `files` is there, with the number of `bytes` that stands
there: `{"files": {"state.json": {"bytes": 2, ...}, ...}, "step": 40, ...}`.
"""

import functools
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ckptlab.checkpoint import Contents, save
from ckptlab.course.exercise import Case
from ckptlab.steps import list_steps

MINUTES = 6
WORLD_SIZES = (1,)
IN_KERNEL = True
HINTS = (
    "Begin with the names: `re.fullmatch(r'step-(\\d{8})', path.name)` for each `path` in `Path(run).iterdir()`.",
    "`json.loads` raises ValueError for a manifest that was cut; a manifest that is not there is FileNotFoundError.",
    "For each of `manifest['files'].items()`: is `path / file` a file, and is its `stat().st_size` equal to `record['bytes']`?",
)


def committed_steps(run: str) -> list[int]:
    """Return the sorted numbers of the steps of `run` that are committed and whole."""
    raise NotImplementedError


def solution(run: str) -> list[int]:
    found = []
    for path in Path(run).iterdir():
        name = re.fullmatch(r"step-(\d{8})", path.name)
        try:
            manifest = json.loads((path / "manifest.json").read_bytes())
        except (OSError, ValueError):
            continue
        sizes = {path / file: record["bytes"] for file, record in manifest["files"].items()}
        whole = all(file.is_file() and file.stat().st_size == size for file, size in sizes.items())
        if name and int(name[1]) == manifest["step"] and whole:
            found.append(manifest["step"])
    return sorted(found)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _named(run: str) -> Iterator[tuple[int, Path]]:
    """Give each directory with the name of a step, and its number."""
    for path in sorted(Path(run).iterdir()):
        if name := re.fullmatch(r"step-(\d{8})", path.name):
            yield int(name[1]), path


def _manifest(path: Path) -> dict[str, Any]:
    """Parse the manifest of a directory; an empty one where none can be read."""
    try:
        return dict(json.loads((path / "manifest.json").read_bytes()))
    except (OSError, ValueError):
        return {}


def wrong_by_name(run: str) -> list[int]:
    """A name is not enough: a copy that broke off has it too. Open the manifest, and look for what it lists."""
    return [number for number, _ in _named(run)]


def wrong_wherever_a_manifest_is(run: str) -> list[int]:
    """The rename is the commit. A directory with any other name is being written, being deleted, or somebody's copy."""
    manifests = [(path, _manifest(path)) for path in Path(run).iterdir()]
    whole = [
        int(manifest["step"])
        for path, manifest in manifests
        if manifest and all(_size(path / file) == record["bytes"] for file, record in manifest["files"].items())
    ]
    return sorted(whole)


def wrong_manifest_is_enough(run: str) -> list[int]:
    """The manifest was written last, but files can be lost and cut later: see that each is there, with its size."""
    return [number for number, path in _named(run) if _manifest(path).get("step") == number]


def wrong_sizes_are_not_compared(run: str) -> list[int]:
    """A file that is there may have been cut: compare its size with `bytes` too."""
    return [
        number
        for number, path in _named(run)
        if (manifest := _manifest(path)).get("step") == number and all((path / file).is_file() for file in manifest["files"])
    ]


def check(answer: Callable[[str], list[int]], rank: int, world_size: int) -> Iterator[Case]:
    draw = random.Random("4.2")
    with TemporaryDirectory() as folder:
        for story, spoil in _STORIES.items():
            run = Path(folder) / "run"
            shutil.copytree(_saved_run().name, run)
            last = list_steps(run)[-1].path
            spoil(last, draw)
            expected = [step.number for step in list_steps(run) if step.whole]
            yield Case(answer(str(run)), expected, where=f"{story}; there are {', '.join(_names(run))}")
            shutil.rmtree(run)


@functools.cache  # one run for all answers and stories
def _saved_run() -> "TemporaryDirectory[str]":
    folder, draw = TemporaryDirectory(), random.Random("4.2")
    for number in sorted(draw.sample(range(1, 1000), 3)):
        save(Path(folder.name), number, Contents(model={"weight": torch.full((4,), float(number))}, state={"step": number}))
    return folder


def _names(run: Path) -> list[str]:
    return sorted(path.name for path in run.iterdir() if path.is_dir())


def _files(step: Path) -> list[Path]:
    return sorted(path for path in step.rglob("*") if path.is_file() and path.name != "manifest.json")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _rename(step: Path, name: str) -> None:
    step.rename(step.with_name(name))


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


_STORIES: dict[str, Callable[[Path, random.Random], object]] = {
    "nothing happened": lambda step, draw: None,
    "killed before the rename": lambda step, draw: _rename(step, f".tmp-{step.name}-5eed0004"),
    "killed while it was deleted": lambda step, draw: _rename(step, f".trash-{step.name}-5eed0004"),
    "the manifest is not there": lambda step, draw: (step / "manifest.json").unlink(),
    "the manifest was cut": lambda step, draw: (step / "manifest.json").write_bytes(b'{\n "format": "ckptlab",\n "ver'),
    "a file is not there": lambda step, draw: draw.choice(_files(step)).unlink(),
    "a file was cut": lambda step, draw: _cut(draw.choice(_files(step))),
    "somebody made a copy": lambda step, draw: shutil.copytree(step, step.with_name(f"{step.name}-copy")),
    "somebody gave it another number": lambda step, draw: _rename(step, "step-00001000"),
    "a bit flipped, which only a load can see": lambda step, draw: _flip(draw.choice(_files(step))),
}
