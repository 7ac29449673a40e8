"""Damaged and foreign steps: never a wrong value or a changed model, always found by `verify`; pieces of any cut are read."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from steps_made_by_hand import MODEL, OPTIM, RANK, make_step

from ckptlab.checkpoint import Contents, load
from ckptlab.errors import CkptlabError
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


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/hostname", "model/../../outside", "ranks/x", "model/a/b", "model/\x1b[2J"]
)
def test_no_name_leads_out_of_the_step(name: str, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"x" * 100)
    step = make_step(tmp_path / "run", 40)
    good = (step / "manifest.json").read_bytes()
    (step / "manifest.json").write_bytes(good.replace(b"model/model-00001-of-00001.safetensors", name.encode("unicode_escape")))
    assert what_a_load_gives(step) == "refused"


def test_a_link_in_the_place_of_a_file_or_folder_is_not_followed(tmp_path: Path) -> None:
    outside = make_step(tmp_path / "outside", 40)
    for what in ("model", "model/model-00001-of-00001.safetensors", "state.json", "manifest.json"):
        step = make_step(tmp_path / what.replace("/", "-"), 40)
        (step / what).rename(tmp_path / "moved")
        (step / what).symlink_to(outside / what)
        assert what_a_load_gives(step) == "refused", what
        (tmp_path / "moved").rename(tmp_path / f"was-{what.replace('/', '-')}")
