import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from steps_made_by_hand import BLOCK_BYTES, make_step

from ckptlab.steps import verify
from ckptlab.steps.steps import read_step
from ckptlab.steps.verify import bad_block
from ckptlab.storage import posix

FILES = [
    "model/model-00001-of-00001.safetensors",
    "model/config.json",
    "optim/optim-00001-of-00001.safetensors",
    "ranks/rank-00001.safetensors",
    "ranks/rank-00001.json",
    "state.json",
]


@contextmanager
def flipped_bit(path: Path, at: int) -> Iterator[None]:
    was = path.read_bytes()[at]
    for byte in (was ^ 0b100, was):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([byte]))
        if byte != was:
            yield


def tensors_between(path: Path, begin: int, end: int) -> tuple[str, ...]:
    """By the file's own header."""
    if path.suffix != ".safetensors":
        return ()
    data = path.read_bytes()
    data_begin = 8 + int.from_bytes(data[:8], "little")
    spans = {name: entry["data_offsets"] for name, entry in json.loads(data[8:data_begin]).items()}
    return tuple(
        sorted(name for name, (first, last) in spans.items() if data_begin + first < end and begin < data_begin + last)
    )


def test_a_step_as_it_was_written_has_no_fault_and_every_byte_was_read(tmp_path: Path) -> None:
    step = read_step(make_step(tmp_path, 40))
    read: list[int] = []
    assert list(verify(step, read.append)) == []
    assert sum(read) == step.num_bytes


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_is_found_in_its_block_and_named_with_the_tensors_there(tmp_path: Path, file: str) -> None:
    path = make_step(tmp_path, 40, more_files={"model/config.json": b"{}"})
    num_bytes = (path / file).stat().st_size
    header_bytes = int.from_bytes((path / file).read_bytes()[:8], "little") if file.endswith(".safetensors") else -1
    for at in {header_bytes + 8, num_bytes // 2 + header_bytes // 2, num_bytes - 1} - {7}:
        begin = at - at % BLOCK_BYTES
        end = min(begin + BLOCK_BYTES, num_bytes)
        expected = tensors_between(path / file, begin, end)
        with flipped_bit(path / file, at):
            (fault,) = verify(read_step(path))
        assert (fault.file, fault.begin, fault.end, fault.tensors) == (file, begin, end, expected)


@pytest.mark.parametrize("file", [file for file in FILES if file.endswith(".safetensors")])
def test_every_flipped_bit_of_a_header_is_found_too(tmp_path: Path, file: str) -> None:
    path = make_step(tmp_path, 40)
    for at in range(8 + int.from_bytes((path / file).read_bytes()[:8], "little")):
        with flipped_bit(path / file, at):
            assert [(fault.file, fault.begin) for fault in verify(read_step(path))] == [(file, at - at % BLOCK_BYTES)]


def test_every_flipped_bit_of_the_manifest_is_found(tmp_path: Path) -> None:
    path = make_step(tmp_path, 40)
    for at in range((path / "manifest.json").stat().st_size):
        with flipped_bit(path / "manifest.json", at):
            assert [fault.file for fault in verify(read_step(path))] == ["manifest.json"], f"byte {at}"


def test_a_block_larger_than_the_buffer_is_summed_whole(tmp_path: Path) -> None:
    zeros = {"big": np.zeros(9 << 20, "u1")}
    path = make_step(tmp_path, 40, model=zeros, optim={}, block_bytes=6 << 20)
    assert list(verify(read_step(path))) == []
    with flipped_bit(path / FILES[0], (5 << 20) + 7):
        (fault,) = verify(read_step(path))
    assert (fault.begin, fault.end, fault.tensors) == (0, 6 << 20, ("big",))


def test_a_missing_a_short_and_an_unlisted_file_are_named_and_the_rest_is_still_read(tmp_path: Path) -> None:
    path = make_step(tmp_path, 40)
    (path / "optim/optim-00001-of-00001.safetensors").unlink()
    os.truncate(path / "ranks/rank-00000.json", 3)
    for extra in ("notes.txt", "model/model.bin"):
        (path / extra).touch()
    (path / "model/more").mkdir()
    (path / "pinned").touch()
    (path / "state.json").write_bytes((path / "state.json").read_bytes().replace(b"40", b"41"))
    faults = {fault.file: fault for fault in verify(read_step(path))}
    optim_file = "optim/optim-00001-of-00001.safetensors"
    unlisted = {"notes.txt", "model/model.bin", "model/more"}
    assert faults.keys() == {optim_file, "ranks/rank-00000.json", "state.json", *unlisted}
    assert faults[optim_file].tensors == ("exp_avg::proj.weight", "step::proj.weight")
    assert faults["ranks/rank-00000.json"].what == "has 3 bytes, 14 were written"
    assert "not listed" in faults["notes.txt"].what


@pytest.mark.parametrize("call", ["open_to_read", "size_of"])
def test_a_file_that_may_not_be_opened_or_seen_is_named_and_the_rest_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = make_step(tmp_path, 40)
    really = getattr(posix, call)

    def refused(file: Path) -> object:
        if file.name in {"rank-00000.safetensors", "optim-00001-of-00001.safetensors"}:
            raise PermissionError(13, "Permission denied", str(file))
        return really(file)

    (path / "state.json").write_bytes((path / "state.json").read_bytes().replace(b"40", b"41"))
    monkeypatch.setattr(posix, call, refused)
    faults = {fault.file: fault for fault in verify(read_step(path))}
    optim_file = "optim/optim-00001-of-00001.safetensors"
    assert faults.keys() == {optim_file, "ranks/rank-00000.safetensors", "state.json"}
    assert faults[optim_file].tensors == ("exp_avg::proj.weight", "step::proj.weight")
    assert faults[optim_file].end == (path / optim_file).stat().st_size
    assert all("Permission denied" in faults[file].what for file in (optim_file, "ranks/rank-00000.safetensors"))


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = read_step(make_step(tmp_path, 40))

    def refused(folder: Path) -> list[str]:
        if folder.name == "model":
            raise PermissionError(13, "Permission denied", str(folder))
        return sorted(os.listdir(folder))

    monkeypatch.setattr(posix, "list_names", refused)
    (fault,) = verify(step)
    assert (fault.file, "cannot be listed" in fault.what) == ("model", True)


def test_a_rank_file_with_a_header_that_cannot_be_read_is_named_without_its_tensors(tmp_path: Path) -> None:
    path = make_step(tmp_path, 40)
    with (path / FILES[3]).open("r+b") as file:
        file.write(b"\xff" * 8)
    (fault,) = verify(read_step(path))
    assert (fault.file, fault.begin, fault.end, fault.tensors) == (FILES[3], 0, BLOCK_BYTES, ())


@pytest.mark.parametrize(("file", "tensor"), [(FILES[2], "exp_avg::proj.weight"), (FILES[3], "rng::torch")])
def test_a_block_that_a_reader_found_bad_is_named_as_verify_names_it(tmp_path: Path, file: str, tensor: str) -> None:
    path = make_step(tmp_path, 40)
    with flipped_bit(path / file, (path / file).stat().st_size - 9):
        step = read_step(path)
        (fault,) = verify(step)
        assert step.manifest is not None
        assert bad_block(path, step.manifest, file, fault.begin // BLOCK_BYTES, fault.what) == fault
    assert tensor in fault.tensors
