"""Damaged and foreign steps: never a wrong value or a changed model, always found by `verify`; pieces of any cut are read."""

import dataclasses
import os
import re
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from steps_made_by_hand import MODEL, OPTIM, RANK, make_step

from ckptlab.checkpoint import Contents, load
from ckptlab.cli.main import run
from ckptlab.errors import CkptlabError, LoadError
from ckptlab.format.manifest import Manifest
from ckptlab.format.records import FileRecord
from ckptlab.steps import verify
from ckptlab.steps.steps import read_step

Arrays = dict[str, np.ndarray]


def empty() -> Contents:
    """Contents to fill, all zeros."""
    zeros = [
        {name: torch.zeros(a.shape, dtype=torch.from_numpy(a).dtype) for name, a in s.items()} for s in (MODEL, OPTIM, RANK)
    ]
    return Contents(model=zeros[0], optim=zeros[1], rank_tensors=zeros[2])


def is_zero(contents: Contents) -> bool:
    return not any(bool(t.any()) for part in (contents.model, contents.optim, contents.rank_tensors) for t in part.values())


def is_right(contents: Contents) -> bool:
    pairs = ((contents.model, MODEL), (contents.optim, OPTIM), (contents.rank_tensors, RANK))
    return all(np.array_equal(found[name].numpy(), array) for found, arrays in pairs for name, array in arrays.items())


def files(step: Path) -> Iterator[Path]:
    return (path for path in sorted(step.rglob("*")) if path.is_file())


def what_a_load_gives(step: Path) -> str:
    contents = empty()
    try:
        loaded = load(step, lambda manifest, state: contents)
    except CkptlabError:
        return "refused" if is_zero(contents) else "refused, and the model changed"
    return "right" if is_right(contents) and loaded.state["epoch"] == 1 and loaded.rank_state == {"counter": 7} else "wrong"


@pytest.mark.parametrize("cut_dim", [None, 0, 1])
def test_pieces_of_any_cut_load_bitwise(cut_dim: int | None, tmp_path: Path) -> None:
    assert what_a_load_gives(make_step(tmp_path, 40, cut_dim=cut_dim)) == "right"


@pytest.mark.timeout(300)
def test_no_flipped_bit_gives_a_wrong_value_and_verify_finds_each(tmp_path: Path) -> None:
    step = make_step(tmp_path, 40, cut_dim=1)
    seen = {"refused": 0, "right": 0}
    for path in files(step):
        good = path.read_bytes()
        for position in range(len(good)):
            bad = bytearray(good)
            bad[position] ^= 1 << position % 8
            path.write_bytes(bad)
            given = what_a_load_gives(step)
            assert given in seen, f"byte {position} of {path.name}: {given}"
            seen[given] += 1
            assert list(verify(read_step(step))), f"byte {position} of {path.name}: verify finds nothing"
        path.write_bytes(good)
    assert what_a_load_gives(step) == "right"
    assert seen["refused"] > 2 * seen["right"], "most bytes of a step are used by a load"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_file_that_is_cut_short_longer_or_gone_is_never_loaded(number: int, tmp_path: Path) -> None:
    for file in [path.relative_to(tmp_path / "step-00000040") for path in files(make_step(tmp_path, 40))]:
        path = tmp_path / "step-00000040" / file
        good = path.read_bytes()
        if number == 0:
            path.unlink()
        else:
            path.write_bytes(good[:-2] if number == 1 else good + b"\0")
        assert what_a_load_gives(tmp_path / "step-00000040") == "refused", file
        path.write_bytes(good)


Damage = Callable[[Path], None]

MIB, DEEP, OWN = 1 << 20, b'{"a":' * 100_000, "ranks/rank-00000.safetensors"


def right(file: str, data: bytes | None, **members: object) -> Damage:
    """Let a file hold `data`, or be none; all sums are right. `RUN` in its name is the run's path."""

    def damage(step: Path) -> None:
        manifest = Manifest.parse((step / "manifest.json").read_bytes())
        name = file.replace("RUN", str(step.parent))
        files = {known: record for known, record in manifest.files.items() if known != name}
        if data is None:
            (step / name).unlink()
        else:
            (step / name).parent.mkdir(parents=True, exist_ok=True)
            (step / name).write_bytes(data)
            blocks = [data[begin : begin + manifest.block_bytes] for begin in range(0, len(data), manifest.block_bytes)]
            files[name] = FileRecord(len(data), tuple(map(zlib.crc32, blocks)))
        (step / "manifest.json").write_bytes(dataclasses.replace(manifest, files=files, **members).to_json())

    return damage


def manifest(old: bytes, new: bytes, num_bytes: int | None = None) -> Damage:
    """Write `new` for `old` in the manifest, and give it a size."""

    def damage(step: Path) -> None:
        path = step / "manifest.json"
        path.write_bytes(path.read_bytes().replace(old, new, 1))
        os.truncate(path, num_bytes or path.stat().st_size)

    return damage


def swapped(step: Path) -> None:
    one, other = step / "pieces/model-0.safetensors", step / "pieces/model-1.safetensors"
    one.rename(step.parent / "moved")
    other.rename(one)
    (step.parent / "moved").rename(other)


HOSTILE: dict[str, tuple[Damage, str, int]] = {  # what a load says, and the exit code of verify, which looks at sums
    "a newer version": (manifest(b'"version": 1', b'"version": 2'), "version 2, expected 1; use the ckptlab that wrote it", 1),
    "a member twice": (manifest(b'"step": 40', b'"step": 40, "step": 40'), "member 'step' stands twice", 1),
    "a deep manifest": (manifest(b'"saved_by": {', b'"saved_by": ' + DEEP + b"{"), "manifest: not strict JSON", 1),
    "a manifest of 1 TiB": (manifest(b"", b"", 1 << 40), "has 1099511627776 bytes; such a file has at most 67108864", 1),
    "files with each other's name": (swapped, "pieces/model-0.safetensors bytes 0-.*: crc32 is", 1),
    "a file above the step": (right("../outside", b"x"), r"file name '../outside'", 1),
    "a file above a folder": (right("model/../../outside", b"x"), "file name 'model/../../outside'", 1),
    "a file in a folder of a folder": (right("model/a/b", b"x"), "file name 'model/a/b'", 1),
    "an absolute file": (right("RUN/outside", b"x"), "file name '/", 1),
    "a file that clears the screen": (right("model/\x1b[2J", b"x"), r"file name 'model/\\x1b\[2J'", 1),
    "a rank's file less": (right(OWN, None, saved_by={}), f"the step has no {OWN}", 0),
    "a deep state": (right("state.json", DEEP), "state: not strict JSON", 0),
    "no state": (right("state.json", None), "files: expected 'state.json' among them", 1),
    "an empty state": (right("state.json", b""), "state: not strict JSON", 0),
    "an empty file of a rank": (right(OWN, b""), "header: begins with ''|the file ends at byte 0", 0),
    "a state in a list": (right("state.json", b"[]"), "state.json holds a list", 0),
    "a state of 65 MiB": (right("state.json", bytes(65 * MIB)), "68157440 bytes, expected at most 67108864", 0),
    "a deep state of a rank": (right("ranks/rank-00000.json", DEEP), "state: not strict JSON", 0),
    "a rank's deep header": (right(OWN, len(DEEP).to_bytes(8, "little") + DEEP), "header: not strict JSON", 0),
    "a rank's header of 16 EiB": (right(OWN, b"\xff" * 8 + b"{}"), "expected 8 bytes that hold at most", 0),
    "a rank's header of 100 MB that is not there": (right(OWN, (10**8).to_bytes(8, "little") + b"{}"), "header: 10 bytes", 0),
    "65 MiB of a rank that nobody wants": (right(OWN, save({"x": np.zeros(65 * MIB, "u1")})), "'x' is in the step and not", 0),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_hostile_step_is_refused_for_what_it_is_and_never_taken_into_memory(
    why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, words, code = HOSTILE[why]
    step, contents = make_step(tmp_path, 40, cut_dim=0, block_bytes=MIB), empty()
    damage(step)
    tracemalloc.start()
    try:
        with pytest.raises(LoadError, match=words):
            load(step, lambda manifest, state: contents)
        assert run(["verify", str(step)]) == code
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()
    assert is_zero(contents)
    assert re.search(words if code else "as they were written", capsys.readouterr().out)


def test_a_link_in_the_place_of_a_file_or_folder_is_not_followed(tmp_path: Path) -> None:
    outside = make_step(tmp_path / "outside", 40)
    for what in ("model", "model/model-00001-of-00001.safetensors", "state.json", "manifest.json"):
        step = make_step(tmp_path / what.replace("/", "-"), 40)
        (step / what).rename(tmp_path / "moved")
        (step / what).symlink_to(outside / what)
        assert what_a_load_gives(step) == "refused", what
        (tmp_path / "moved").rename(tmp_path / f"was-{what.replace('/', '-')}")
