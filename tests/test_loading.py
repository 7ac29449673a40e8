"""What a load can be told: the weights alone, other names, other floating dtypes, only part of the names."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from steps_made_by_hand import make_step
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor.placement_types import Shard

from ckptlab.checkpoint import Contents, load, save
from ckptlab.checkpoint.collectives import Group
from ckptlab.checkpoint.load import wanted_files
from ckptlab.errors import CorruptError, LoadError, UsageError
from ckptlab.ranks import World
from ckptlab.resume import TrainState, load_weights
from ckptlab.steps.steps import read_step


class Tied(nn.Module):
    """An embedding, a head that is tied to it or not, and a buffer."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        self.register_buffer("count", torch.tensor(3))
        if tied:
            self.head.weight = self.embed.weight


def saved(run: Path, model: nn.Module) -> Path:
    """Save a run of this model with an optimizer state in it, and return the step."""
    optimizer = torch.optim.AdamW(model.parameters())
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    optimizer.step()
    state = TrainState(model=model, optimizer=optimizer)
    state.step = 1
    return save(run, 1, state.contents())


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def load_into_shards(step: Path, expected: dict[str, Any], dtype: torch.dtype) -> list[str]:
    """Load into a sharded model of this dtype; return the names that are not what torch makes of the expected ones."""
    model = Tied().to(dtype)
    fully_shard(model, mesh=init_device_mesh("cpu", (torch.distributed.get_world_size(),)))
    load_weights(step, model, cast=True)
    found = {name: getattr(t, "full_tensor", lambda t=t: t)() for name, t in model.state_dict().items()}
    return [n for n, t in found.items() if not same_bits(t, torch.from_numpy(expected[n]).to(t.dtype))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
def test_the_weights_alone_are_loaded_into_shards_of_another_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Tied()
    step = saved(tmp_path, model)
    expected = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    with World(2) as world:
        assert world.run(load_into_shards, step, expected, dtype) == [[], []]


def cast_columns(step: Path) -> bool:
    mesh = init_device_mesh("cpu", (2,))
    filled = distribute_tensor(torch.zeros(12, 8, dtype=torch.float64), mesh, [Shard(1)])
    load(step, lambda manifest, state: Contents(model={"proj.weight": filled}), model_only=True, cast=True, strict=False)
    return torch.equal(filled.full_tensor(), torch.arange(96.0, dtype=torch.float64).reshape(12, 8))


@pytest.mark.parametrize("block_bytes", [7, 100, 4096])
def test_a_cast_reads_pieces_and_blocks_that_end_within_a_value(tmp_path: Path, block_bytes: int) -> None:
    step = make_step(tmp_path, 1, cut_dim=0, block_bytes=block_bytes)
    with World(2) as world:
        assert world.run(cast_columns, step) == [True, True]


def load_halves(step: Path) -> tuple[int, str]:
    """Load half of each of many tensors that are smaller than a block; return the bytes that were read, and what went wrong."""
    mesh = init_device_mesh("cpu", (2,))
    wanted = {f"{number}": distribute_tensor(torch.zeros(512, 512), mesh, [Shard(0)]) for number in range(24)}
    before = read_so_far()
    try:
        load(step, lambda manifest, state: Contents(model=wanted), verify_first=False)
    except CorruptError as error:
        return 0, str(error)
    read = read_so_far() - before
    right = all(bool((tensor.full_tensor() == float(name)).all()) for name, tensor in wanted.items())
    return read, "" if right else "other values"


def read_so_far() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a process reads")
def test_a_rank_reads_only_its_part_of_a_block_and_the_ranks_together_find_what_is_wrong_in_it(tmp_path: Path) -> None:
    step = save(tmp_path, 1, Contents(model={f"{number}": torch.full((512, 512), float(number)) for number in range(24)}))
    num_bytes = 24 * 2**20
    (file,) = step.glob("model/*.safetensors")
    with World(2) as world:
        (first, wrong), (second, also_wrong) = world.run(load_halves, step)
        assert (wrong, also_wrong) == ("", "")
        assert max(first, second) < 0.5 * num_bytes + 2**20, "its half, the header, the manifest"
        with file.open("r+b") as opened:
            opened.seek(num_bytes // 2)
            opened.write(b"\x01")
        told = world.run(load_halves, step)
    assert all(
        re.search(r"model-00001-of-00001.safetensors bytes 12582912-16777216: .*; tensors in it: ", why) for _, why in told
    )


def test_a_dtype_differs_only_where_the_load_was_told_and_only_between_floats(tmp_path: Path) -> None:
    step = saved(tmp_path, Tied())
    wide = Tied().double()
    with pytest.raises(LoadError, match=r"'embed.weight' is F32 \[9, 4\] in the step, wanted F64 \[9, 4\]"):
        load_weights(step, wide)
    wide.count = torch.tensor(0.0)
    before = wide.embed.weight.clone()
    with pytest.raises(LoadError, match=r"'count' is I64 \[\] in the step, wanted F32 \[\]"):
        load_weights(step, wide, cast=True)
    assert torch.equal(wide.embed.weight, before), "a refused load changes nothing"
    floats = nn.Sequential(nn.Linear(1, 1))
    step = saved(tmp_path / "floats", floats)
    floats[0].weight = nn.Parameter(torch.zeros(1, 1, dtype=torch.int64), requires_grad=False)
    with pytest.raises(LoadError, match=r"'0.weight' is F32 \[1, 1\] in the step, wanted I64 \[1, 1\]"):
        load_weights(step, floats, cast=True)


def test_a_tie_is_loaded_into_models_that_tie_otherwise_or_not_at_all(tmp_path: Path) -> None:
    model, untied = Tied(), Tied(tied=False)
    step = saved(tmp_path, model)
    load_weights(step, untied)
    assert same_bits(untied.head.weight, model.embed.weight)
    assert same_bits(untied.embed.weight, model.embed.weight)


def test_a_step_that_has_a_tie_by_both_names_is_taken_where_both_have_the_same_bytes(tmp_path: Path) -> None:
    tied, both = Tied(), Tied(tied=False).state_dict()
    both["head.weight"] = both["embed.weight"].clone()
    step = save(tmp_path, 1, Contents(model=both), max_file_bytes=100)
    assert load_weights(step, tied).unexpected == {"model": []}
    assert same_bits(tied.head.weight, both["head.weight"])
    both["head.weight"][8, 3] += 1
    for number, head in enumerate((both["head.weight"], both["embed.weight"].view(torch.int32)), start=2):
        step = save(tmp_path, number, Contents(model={**both, "head.weight": head}))
        with pytest.raises(LoadError, match=r"'embed.weight' and 'head.weight' are tied in this model and differ in the step"):
            load_weights(step, tied)
        assert load_weights(step, tied, strict=False).unexpected == {"model": ["head.weight"]}


def test_files_that_are_wanted_of_a_step_are_also_those_of_a_ties_further_names(tmp_path: Path) -> None:
    both = Tied(tied=False).state_dict()
    tied = {name: tensor for name, tensor in both.items() if name != "head.weight"}
    step = save(tmp_path, 1, Contents(model=both), max_file_bytes=100)
    manifest = read_step(step).manifest
    assert manifest is not None
    pieces = {piece.file for record in manifest.tensors["model"].values() for piece in record.pieces}
    wanted = Contents(model=tied, aliases={"head.weight": "embed.weight"})
    with Group.lent(None) as group:
        assert set(wanted_files(step, manifest, lambda *_: wanted, group)) == {"state.json", *pieces}


def test_names_may_be_others_or_missing_only_where_the_load_was_told(tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    step = saved(tmp_path, backbone)
    fine = nn.ModuleDict({"body": nn.Linear(3, 2), "new_head": nn.Linear(2, 5)})
    fresh = {name: tensor.clone() for name, tensor in fine.state_dict().items()}
    rename = {"body.weight": "0.weight", "body.bias": "0.bias"}
    with pytest.raises(LoadError, match=r"'body.bias' is not in the step; .*, and 5 more; .*rename=.*strict=False"):
        load_weights(step, fine)
    with pytest.raises(LoadError, match=r"'new_head.bias' is not in the step"):
        load_weights(step, fine, rename=rename)
    with pytest.raises(LoadError, match=r"rename: 'body.wieght' is not wanted by any rank"):
        load_weights(step, fine, rename={"body.wieght": "0.weight"}, strict=False)
    assert all(same_bits(tensor, fresh[name]) for name, tensor in fine.state_dict().items()), "a refused load changes nothing"
    loaded = load_weights(step, fine, rename=rename, strict=False)
    assert loaded.missing == {"model": ["new_head.bias", "new_head.weight"]}
    assert loaded.unexpected == {"model": ["1.bias", "1.weight"]}
    assert same_bits(fine["body"].weight, backbone[0].weight)
    assert same_bits(fine["new_head"].weight, fresh["new_head.weight"])


class OnlySomewhere(Tied):
    """A model that cannot be loaded on rank 1, because its state dict holds something that is made for it."""

    def __init__(self) -> None:
        super().__init__()
        if torch.distributed.get_rank() == 1:
            self.register_state_dict_post_hook(lambda module, state, prefix, _: state.update({"made": torch.zeros(1)}))


def load_on_both(step: Path) -> str:
    try:
        load_weights(step, OnlySomewhere())
    except LoadError as error:
        return str(error).partition(": ")[2]
    return ""


def test_what_one_rank_cannot_load_is_every_ranks_error(tmp_path: Path) -> None:
    step = saved(tmp_path, Tied())
    with World(2) as world:
        told = world.run(load_on_both, step)
    assert told[0] == told[1]
    assert "rank 1: 'made' in the model's state dict" in told[0]


def load_stage(step: Path) -> tuple[Any, Any]:
    """Each rank wants a name of its own, and one that the step does not have."""
    rank = torch.distributed.get_rank()
    wanted = {f"{rank}.weight": torch.zeros(2, 3 - rank), f"only{rank}": torch.zeros(1)}
    loaded = load(step, lambda manifest, state: Contents(model=wanted), model_only=True, strict=False)
    return loaded.missing, loaded.unexpected


def test_every_rank_is_told_what_any_rank_misses_and_what_no_rank_wants(tmp_path: Path) -> None:
    step = saved(tmp_path, nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)))
    with World(2) as world:
        told = world.run(load_stage, step)
    assert told == [({"model": ["only0", "only1"]}, {"model": ["0.bias", "1.bias"]})] * 2


def test_a_run_does_not_go_on_from_the_weights_alone(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    step = saved(tmp_path, model)
    state = TrainState(model=model, optimizer=torch.optim.AdamW(model.parameters()))
    loaded = load(step, state.wanted, model_only=True)
    with pytest.raises(UsageError, match="of step 1 the model alone was loaded"):
        state.accept(loaded)
