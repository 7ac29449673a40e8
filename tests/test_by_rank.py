"""`files="by_rank"`: one file a writer; whoever saved, every world loads it bitwise, and all that reads steps reads it."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors import safe_open
from states import Net, load_state, make_state, save_state, values

from ckptlab.checkpoint import Contents, load, save
from ckptlab.cli.main import run
from ckptlab.errors import RankRaised
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer
from ckptlab.steps import compare, verify
from ckptlab.steps.steps import read_step

PAIRS = [
    (("fsdp", 4), ("fsdp", 3)),  # rows; more ranks than rows of some tensors
    (("fsdp x tensor parallel", 4), ("replicated", 1)),  # columns; several boxes of a tensor on a rank
    (("replicated x fsdp", 4), ("tensor parallel", 2)),
]


def save_by_rank(kind: str, run: Path, seed: int) -> None:
    with Checkpointer(run, files="by_rank") as checkpointer:
        checkpointer.save(make_state(kind, seed))


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda topology: f"{topology[0]} {topology[1]}")
def test_what_each_rank_wrote_into_its_own_file_any_world_loads_bitwise(
    source: tuple[str, int], target: tuple[str, int], tmp_path: Path
) -> None:
    with World(source[1]) as world:
        world.run(save_by_rank, source[0], tmp_path, 5)
    step = tmp_path / "step-00000005"
    assert {path.name for path in step.iterdir()} == {"pieces", "ranks", "state.json", "manifest.json"}
    assert list(verify(read_step(step))) == []
    with World(target[1]) as world:
        assert world.run(load_state, target[0], step, 5) == [[]] * target[1]


def test_safetensors_opens_a_ranks_file_in_which_each_piece_says_what_it_is(tmp_path: Path) -> None:
    with World(2) as world:
        world.run(save_by_rank, "fsdp", tmp_path, 5)
        world.run(save_state, "fsdp", tmp_path / "by_tensor", 5)
    step = tmp_path / "step-00000005"
    rows = []
    for rank in range(2):
        with safe_open(step / f"pieces/rank-{rank:05d}.safetensors", "pt") as file:
            (key,) = (key for key in file.keys() if key.startswith("model embed.weight "))  # noqa: SIM118, it is no dict
            assert key == f"model embed.weight [{6 * rank}:{6 + 5 * rank}, 0:6]"
            rows.append(file.get_tensor(key))
    assert torch.equal(torch.cat(rows), values("embed.weight", Net().embed.weight, 5))
    differing = compare(read_step(step), read_step(tmp_path / "by_tensor/step-00000005"))
    assert [found for found in differing if found.section != "ranks"] == []  # each world's generators are at another place


def test_equal_replicas_share_small_tensors_and_parts_of_large_ones_evenly(tmp_path: Path) -> None:
    with World(4) as world:
        world.run(save_shared, tmp_path)
    manifest = json.loads((tmp_path / "step-00000001/manifest.json").read_text())
    sizes = [manifest["files"][f"pieces/rank-{rank:05d}.safetensors"]["bytes"] for rank in range(4)]
    assert max(sizes) - min(sizes) < 5_000, sizes
    pieces = {name: record["pieces"] for name, record in manifest["tensors"]["model"].items()}
    large = sorted((piece["offset"], piece["shape"]) for piece in pieces.pop("large"))
    assert large == [([0, 750 * number, 0], [1, 750, 1500]) for number in range(4)]
    files = [piece["file"] for name, (piece,) in pieces.items() if name.startswith("small")]
    assert sorted(Counter(files).values()) == [2, 2, 2, 2]
    assert pieces["tiny0"][0]["file"] == pieces["tiny1"][0]["file"] == "pieces/rank-00000.safetensors"


def save_shared(run: Path) -> None:
    large = torch.arange(3000 * 1500, dtype=torch.float32).view(1500, 3000).t()[None]  # not contiguous
    small = {f"small{number}": torch.full((200, 100), float(number)) for number in range(8)}
    tiny = {f"tiny{number}": torch.tensor(number) for number in range(2)}
    save(run, 1, Contents(model={"large": large, **small, **tiny}), files="by_rank")


def test_a_flipped_byte_in_a_ranks_file_is_named_with_its_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with World(2) as world:
        world.run(save_by_rank, "tensor parallel", tmp_path, 5)
        step = tmp_path / "step-00000005"
        assert [run([command, str(step)]) for command in ("ls", "show", "verify")] == [0, 0, 0]
        piece = json.loads((step / "manifest.json").read_text())["tensors"]["model"]["few.weight"]["pieces"][1]
        with (step / piece["file"]).open("r+b") as file:
            file.seek(piece["begin"])
            byte = file.read(1)[0]
            file.seek(piece["begin"])
            file.write(bytes([byte ^ 1]))
        named = r"pieces/rank-00001.safetensors bytes .*tensors in it: .*few.weight"
        with pytest.raises(RankRaised, match=named):
            world.run(load_state, "tensor parallel", step, 5)
    capsys.readouterr()
    assert run(["verify", str(step)]) == 1
    assert re.search(named, " ".join(capsys.readouterr().out.split()))


def stage(rank: int) -> Contents:
    """A stage of a pipeline, something that both have, and a buffer of which each has its own values."""
    model = {f"stage{rank}": torch.full((300, 300), rank + 1.0), "shared": torch.ones(300, 300), "mean": torch.full((2,), rank)}
    return Contents(model=model, buffers=frozenset({"mean"}), rank_state={"rank": rank}, rank_tensors={"own": torch.ones(1)})


def save_and_load_a_stage(run: Path) -> bool:
    rank = dist.get_rank()
    step = save(run, 1, stage(rank), files="by_rank")
    expected, filled = stage(rank).model, stage(rank)
    for tensor in filled.model.values():
        tensor.zero_()
    load(step, lambda manifest, state: filled)
    return all(torch.equal(tensor, expected[name]) for name, tensor in filled.model.items())


def test_names_that_only_some_ranks_hold_and_buffers_that_differ_are_saved_by_rank(tmp_path: Path) -> None:
    with World(2) as world:
        assert world.run(save_and_load_a_stage, tmp_path) == [True, True]
    pieces = json.loads((tmp_path / "step-00000001/manifest.json").read_text())["tensors"]["model"]
    files = {name: [piece["file"] for piece in record["pieces"]] for name, record in pieces.items()}
    first, second = "pieces/rank-00000.safetensors", "pieces/rank-00001.safetensors"
    assert files == {"mean": [first], "shared": [first], "stage0": [first], "stage1": [second]}


def differing_files(run: Path) -> None:
    save(run, 1, Contents(model={"w": torch.ones(2)}), files="by_tensor" if dist.get_rank() else "by_rank")


def test_ranks_that_mean_different_files_save_nothing(tmp_path: Path) -> None:
    with World(2) as world, pytest.raises(RankRaised, match="'files' differs between rank 0 and rank 1"):
        world.run(differing_files, tmp_path)
    assert not list(tmp_path.glob("*step*"))
