import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from steps_made_by_hand import MODEL, OPTIM, RANK, STATE, make_step

from ckptlab.errors import StepError
from ckptlab.steps import compare
from ckptlab.steps.steps import read_step


def differences(tmp_path: Path, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, str]:
    """Differences between two steps, by section and name in the order they come."""
    steps = [read_step(make_step(tmp_path / name, 40, **arguments)) for name, arguments in (("a", first), ("b", second))]
    return {f"{found.section} {found.name}": found.what for found in compare(*steps)}


def changed(arrays: Mapping[str, np.ndarray], name: str, index: tuple[int, ...], value: float) -> dict[str, np.ndarray]:
    copies = {key: array.copy() for key, array in arrays.items()}
    copies[name][index] = value
    return copies


@pytest.mark.parametrize("cut_dim", [None, 0, 1])
def test_the_same_values_are_equal_however_they_are_cut_into_files(tmp_path: Path, cut_dim: int | None) -> None:
    assert differences(tmp_path, {}, {"cut_dim": cut_dim}) == {}


@pytest.mark.parametrize("cut_dim", [None, 0, 1])
def test_a_changed_element_is_named_with_its_index_and_both_values(tmp_path: Path, cut_dim: int | None) -> None:
    second = {"optim": changed(OPTIM, "exp_avg::proj.weight", (7, 5), 0.75), "cut_dim": cut_dim}
    assert differences(tmp_path, {}, second) == {"optim exp_avg::proj.weight": "first at [7, 5]: 0.5 and 0.75"}


def test_what_compares_equal_as_a_number_but_not_as_bits_differs(tmp_path: Path) -> None:
    first, second = ({"model": {"w": np.array([1, zero], "f4")}, "optim": {}} for zero in (0.0, -0.0))
    assert differences(tmp_path, first, second) == {"model w": "first at [1]: 0.0 and -0.0"}


def test_two_nans_of_other_bits_differ(tmp_path: Path) -> None:
    first, second = ({"model": {"w": np.array([bits], "u4").view("f4")}, "optim": {}} for bits in (0x7FC00000, 0x7FC00001))
    assert differences(tmp_path, first, second) == {"model w": "first at [0]: nan (bytes 0000c07f) and nan (bytes 0100c07f)"}


@pytest.mark.parametrize("index", [(0, 0), (2, 600_001), (2, 699_999)])
def test_the_first_change_is_found_in_any_window_of_a_large_tensor(tmp_path: Path, index: tuple[int, int]) -> None:
    large = {"w": np.zeros((3, 700_000), "i8")}  # rows do not end where windows of 1 MiB do
    second = changed(changed(large, "w", (2, 699_999), 5), "w", index, -9)
    first = {"model": large, "optim": {}, "block_bytes": 1 << 22}
    only = index == (2, 699_999)
    more = "" if only else "; 2 of 2100000 elements differ"
    assert differences(tmp_path, first, {**first, "model": second}) == {"model w": f"first at {list(index)}: 0 and -9{more}"}


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("f4", -0.5, 2.0), ("i8", -(2**63), 2**63 - 1), ("u1", 0, 255), ("f4", 1.0, float("inf"))]
)
def test_the_element_that_differs_most_is_named_however_wide_its_values_are(
    tmp_path: Path, dtype: str, low: float, high: float
) -> None:
    first = np.zeros(1_200_000, dtype)
    if dtype == "f4":
        first[7] = np.nan
    second = first.copy()
    second[[7, 9, 1_190_000]] = 1
    first[1_190_000], second[1_190_000] = low, high  # in another window than the first
    found = differences(tmp_path, *({"model": {"w": array}, "optim": {}, "block_bytes": 1 << 22} for array in (first, second)))
    assert found == {
        "model w": f"first at [7]: {first[7]} and {second[7]}; 3 of 1200000 elements differ, "
        f"most at [1190000]: {first[1_190_000]} and {second[1_190_000]}"
    }


def test_everything_that_a_step_holds_is_compared_in_order(tmp_path: Path) -> None:
    second = {
        "model": {"norm.weight": MODEL["norm.weight"].reshape(2, 4), "new.weight": MODEL["norm.weight"]},
        "aliases": {"head.weight": "norm.weight"},
        "more_files": {"model/config.json": b'{"layers": 3}'},
        "state": {"epoch": True, "scheduler": {"betas": {"$tuple": [0.9, 0.99]}, "last_epoch": 40.0}, "scaler": None},
        "rank": changed(RANK, "rng::torch", (3,), 77),
        "num_ranks": 3,
    }
    first = {"aliases": {"head.weight": "proj.weight"}, "more_files": {"model/config.json": b'{"layers": 2}'}}
    assert differences(tmp_path, first, second) == {
        "model model/config.json": "first at [11]: 50 and 51",
        "model new.weight": "only in the second",
        "model norm.weight": "F32 [8] and F32 [2, 4]",
        "model proj.weight": "only in the first",
        "model head.weight": "'proj.weight' and 'norm.weight'",
        "state epoch": "1 and True",
        "state scheduler.betas[1]": "0.95 and 0.99",
        "state scheduler.last_epoch": "40 and 40.0",
        "state scaler": "only in the second",
        "ranks ranks/rank-00000.safetensors/rng::torch": "first at [3]: 3 and 77",
        "ranks ranks/rank-00001.safetensors/rng::torch": "first at [3]: 3 and 77",
        "ranks ranks/rank-00002.json": "only in the second",
        "ranks ranks/rank-00002.safetensors": "only in the second",
    }


def test_a_list_of_another_length_and_a_list_that_was_a_tuple_differ(tmp_path: Path) -> None:
    first = {
        "state": {"milestones": [10, 20], "betas": {"$tuple": [0.9]}, "inf": {"$float": "inf"}, "keys": {"$items": [[1, "a"]]}}
    }
    second = {"state": {"milestones": [10], "betas": [0.9], "inf": 0.5, "keys": {"$items": [[True, "a"]]}}}
    assert differences(tmp_path, first, second) == {
        "state milestones": "a list of 2 and a list of 1",
        "state betas": "a tuple of 1 and a list of 1",
        "state inf": "inf and 0.5",
        "state keys[1]": "only in the first",
        "state keys[True]": "only in the second",
    }


def test_a_scalar_and_an_empty_tensor_are_compared_too(tmp_path: Path) -> None:
    first: dict[str, Any] = {"model": {"empty": np.zeros((0, 3), "f4")}, "optim": {"step::w": np.array(3, "f4")}}
    assert differences(tmp_path, first, {**first, "optim": {"step::w": np.array(4, "f4")}}) == {
        "optim step::w": "first at []: 3.0 and 4.0"
    }


def test_a_step_that_is_not_whole_is_not_compared(tmp_path: Path) -> None:
    path = make_step(tmp_path, 40)
    (path / "state.json").write_text(json.dumps(STATE) + " ")
    with pytest.raises(StepError, match=r"is not whole \(state\.json: has"):
        list(compare(read_step(path), read_step(path)))
