"""Promise 1: the bytes on disk do not depend on who wrote them. Promise 2: safetensors itself opens every model file."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from states import TOPOLOGIES, Net, save_state, values

from ckptlab.ranks import World

SHARED = ("model", "optim")


def hashes(step: Path) -> dict[str, str]:
    files = sorted(path for folder in SHARED for path in (step / folder).iterdir())
    return {path.relative_to(step).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def shared_entries(step: Path) -> dict[str, object]:
    manifest = json.loads((step / "manifest.json").read_text())
    files = {name: entry for name, entry in manifest["files"].items() if name.startswith(SHARED)}
    return {"files": files, "tensors": manifest["tensors"], "aliases": manifest["aliases"]}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("reference")
    with World(1) as world:
        world.run(save_state, "replicated", run, 5)
    return run / "step-00000005"


@pytest.mark.parametrize(("kind", "num_ranks"), TOPOLOGIES)
def test_the_same_state_gives_the_same_bytes_from_every_topology(
    kind: str, num_ranks: int, reference: Path, tmp_path: Path
) -> None:
    with World(num_ranks) as world:
        world.run(save_state, kind, tmp_path, 5)
    step = tmp_path / "step-00000005"
    assert hashes(step) == hashes(reference)
    assert shared_entries(step) == shared_entries(reference)
    files = json.loads((step / "manifest.json").read_text())["files"]
    assert sum(not name.startswith(SHARED) for name in files) == 1 + 2 * num_ranks  # state.json, and two a rank


def test_safetensors_opens_the_model_files_and_finds_the_live_values(reference: Path) -> None:
    found = load_file(reference / "model/model-00001-of-00001.safetensors")
    expected = {name: values(name, param, 5) for name, param in Net().named_parameters()}
    expected |= {"count": torch.tensor(7), "nothing": torch.empty(0, 3)}
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
    assert json.loads((reference / "manifest.json").read_text())["aliases"] == {"head.weight": "embed.weight"}
    index = json.loads((reference / "model/model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == found.keys()
