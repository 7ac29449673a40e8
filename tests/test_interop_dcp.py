"""What torch's distributed checkpoint wrote is read bit by bit, what we write it loads, and what lies is refused."""

import os
import pickle
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp_jobs import (
    loaded_by_dcp,
    resumed_by_ckptlab,
    sum_of,
    sums_of,
    trained_and_saved,
)
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

from ckptlab.errors import CkptlabError, LoadError
from ckptlab.interop import dcp_write, torch_archive
from ckptlab.interop.convert import convert
from ckptlab.interop.dcp import open_checkpoint, write_checkpoint
from ckptlab.interop.foreign import Foreign
from ckptlab.ranks import World

JOBS = [
    ("fsdp", 2, "float32"),
    ("fsdp", 4, "bfloat16"),
    ("tensor parallel", 2, "float32"),
    ("fsdp x tensor parallel", 4, "bfloat16"),
]


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[int, World]]:
    with World(2) as two, World(4) as four:
        yield {2: two, 4: four}


def sums_read(foreign: Foreign) -> dict[str, str]:
    """Return the sums of all that a checkpoint of another system gives us, as `dcp_jobs.sums` has them."""
    assert foreign.state is not None
    found = {
        f"{section} {name}": sum_of(foreign.read(section, name))
        for section in foreign.tensors
        for name in foreign.tensors[section]
    }
    found |= {f"model {alias}": found[f"model {name}"] for alias, name in foreign.aliases.items()}
    groups = foreign.state["optimizer"]["groups"]
    return found | {f"group of {name}": repr(sorted(groups[n].items())) for name, n in foreign.state["groups"].items()}


@pytest.mark.parametrize(("kind", "ranks", "dtype"), JOBS)
def test_what_ranks_saved_with_dcp_comes_out_bit_by_bit_and_goes_back_to_any_ranks(
    kind: str, ranks: int, dtype: str, worlds: dict[int, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_archive, "PART_BYTES", 16)  # so that small tensors are read and written as large ones are
    monkeypatch.setattr(dcp_write, "CHUNK_BYTES", 64)
    saved = worlds[ranks].run(trained_and_saved, kind, dtype, tmp_path / "theirs")[0]
    foreign = open_checkpoint(tmp_path / "theirs")
    assert sums_read(foreign) == saved
    assert foreign.aliases == {"head.weight": "embed.weight"}
    assert foreign.state is not None
    assert (foreign.state["step"], foreign.state["stateful"]) == (3, {"sampler": {"epoch": 1, "seen": [3, 4]}})

    told: list[int] = []
    write_checkpoint(foreign, tmp_path / "ours", told.append)
    assert sum(told) == sum(spec.num_bytes for named in foreign.tensors.values() for spec in named.values())
    chunks = [found.chunks for found in metadata_of(tmp_path / "ours").state_dict_metadata.values() if hasattr(found, "chunks")]
    assert max(map(len, chunks)) > 2
    assert worlds[2].run(loaded_by_dcp, "tensor parallel", dtype, tmp_path / "ours")[0] == saved
    assert worlds[4].run(loaded_by_dcp, "fsdp", dtype, tmp_path / "ours")[0] == saved
    dcp_to_torch_save(tmp_path / "ours", tmp_path / "ours.pt")
    assert sums_of(torch.load(tmp_path / "ours.pt")) == saved


def test_a_job_goes_on_from_its_converted_checkpoint_as_from_its_own_on_another_number_of_ranks(
    worlds: dict[int, World], tmp_path: Path
) -> None:
    worlds[4].run(trained_and_saved, "fsdp", "float32", tmp_path / "theirs")
    converted = convert(tmp_path / "theirs", tmp_path / "run", target_format="ckptlab")
    assert converted.path == tmp_path / "run/step-00000003"
    by_dcp = worlds[2].run(loaded_by_dcp, "fsdp", "float32", tmp_path / "theirs", steps=2)[0]
    assert worlds[2].run(resumed_by_ckptlab, "fsdp", "float32", tmp_path / "run", steps=2)[0] == by_dcp
    convert(tmp_path / "run", tmp_path / "back", target_format="dcp")
    assert worlds[2].run(loaded_by_dcp, "fsdp", "float32", tmp_path / "back", steps=2)[0] == by_dcp


def job(steps: int = 2) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A small job in this process, with two param groups and a learning rate that is a tensor."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3, bias=False))
    groups = [{"params": [p for p in model.parameters() if p.dim() == dim], "weight_decay": dim / 8} for dim in (2, 1)]
    optimizer = torch.optim.AdamW(groups, lr=torch.tensor(0.1), foreach=False)
    for _ in range(steps):
        model(torch.ones(2, 5)).sum().backward()
        optimizer.step()
    return model, optimizer


def states(flat: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the job's states; beside its parameters the model has an equal-sized frozen one, and one with odd strides."""
    model, optim = get_state_dict(*job(), options=StateDictOptions(flatten_optimizer_state_dict=flat))
    return {**model, "frozen": torch.ones(4, 5), "turned": torch.arange(60.0).reshape(3, 4, 5).permute(1, 2, 0)}, dict(optim)


def save(state_dict: dict[str, Any], folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no ranks
        dcp.save(state_dict, checkpoint_id=folder, no_dist=True)
    return folder


MODEL, OPTIM = states()
_, FLAT = states(flat=True)
SCHED = {"sched": {"last": [1.5, (2, 3)]}}
TRAIN_STATE = {"train_state": {"step": torch.tensor(2), "seen": b"\0\1"}}
SHAPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"model": MODEL, "optim": OPTIM, **SCHED, "epoch": 7, "step": 2}, {**SCHED, "epoch": 7}),
    ({"app": {"model": MODEL, "optim": OPTIM, **SCHED}, "sched": {"other": 1}}, SCHED),
    ({"net": MODEL, "ema": {"0.weight": torch.ones(40, 50)}, "optimizer": FLAT}, {}),
    ({**MODEL, "optimizer": FLAT, **TRAIN_STATE}, TRAIN_STATE),
]


@pytest.mark.parametrize(("whole", "rest"), SHAPES, ids=["usual", "in one object", "flat optimizer", "model at the top"])
def test_model_and_optimizer_are_found_in_every_usual_shape_of_a_state(
    whole: dict[str, Any], rest: dict[str, Any], tmp_path: Path
) -> None:
    foreign = open_checkpoint(save(whole, tmp_path / "ckpt"))
    assert sums_read(foreign) == sums_of({"model": MODEL, "optim": OPTIM})
    assert foreign.state is not None
    assert (foreign.state["step"], foreign.state["stateful"]) == (2, rest)
    said = " ".join(foreign.left)
    assert ("'ema.0.weight' is a tensor of 8000 bytes" in said, "sched: another" in said) == ("ema" in whole, "app" in whole)
    assert foreign.aliases == {}


@pytest.mark.parametrize(
    "whole", [{"model": MODEL, "average": MODEL}, {**MODEL, "average": MODEL}, MODEL], ids=["named", "at the top", "alone"]
)
def test_a_model_without_an_optimizer_is_weights_without_a_state(whole: dict[str, Any], tmp_path: Path) -> None:
    foreign = open_checkpoint(save(whole, tmp_path / "ckpt"))
    assert (foreign.state, foreign.tensors["optim"], foreign.tensors["model"].keys()) == (None, {}, MODEL.keys())
    assert [words.partition(":")[0] for words in foreign.left] == ["average"] * ("average" in whole)
    write_checkpoint(foreign, tmp_path / "ours", lambda _: None)
    assert open_checkpoint(tmp_path / "ours").tensors == foreign.tensors


def test_of_sgd_the_job_itself_tells_the_step_and_parameters_without_state_stay_without(tmp_path: Path) -> None:
    model = nn.Linear(2, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.weight.square().sum().backward()
    optimizer.step()
    whole = {"model": model.state_dict(), "optim": {"state": {"weight": optimizer.state[model.weight]}}, "step": 5}
    whole["optim"]["param_groups"] = [{"lr": 0.1, "params": ["weight", "bias"]}]
    foreign = open_checkpoint(save(whole, tmp_path / "ckpt"))
    assert foreign.state is not None
    assert (foreign.state["step"], foreign.state["groups"], list(foreign.tensors["optim"])) == (
        5,
        {"weight": 0, "bias": 0},
        ["momentum_buffer::weight"],
    )
    write_checkpoint(foreign, tmp_path / "ours", lambda _: None)
    assert open_checkpoint(tmp_path / "ours").state == foreign.state


def test_param_groups_of_a_flat_optimizer_come_in_the_order_of_the_job_not_of_its_ranks(tmp_path: Path) -> None:
    folder = save({"model": MODEL, "optim": FLAT}, tmp_path / "ckpt")
    metadata = metadata_of(folder)
    metadata.state_dict_metadata = dict(reversed(metadata.state_dict_metadata.items()))
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    foreign = open_checkpoint(folder)
    assert foreign.state is not None
    assert foreign.state["groups"] == {"0.weight": 0, "1.weight": 0, "0.bias": 1}


def test_an_adamw_of_which_few_settings_are_known_is_written_with_all_that_a_load_asks_for(tmp_path: Path) -> None:
    foreign = open_checkpoint(save({"model": MODEL, "optim": OPTIM}, tmp_path / "ckpt"))
    assert foreign.state is not None
    few = {**foreign.state, "optimizer": {"class": "AdamW", "groups": [{"lr": 0.5}] * 2}}
    write_checkpoint(replace(foreign, state=few), tmp_path / "ours", lambda _: None)
    found = open_checkpoint(tmp_path / "ours").state
    assert found is not None
    group, _ = found["optimizer"]["groups"]
    assert (group["lr"], group.keys()) == (0.5, foreign.state["optimizer"]["groups"][0].keys())


def numbered() -> dict[str, Any]:
    return {"model": MODEL, "optim": job()[1].state_dict()}


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        (numbered(), "parameters are numbers.*get_optimizer_state_dict"),
        ({"model": MODEL, "one": OPTIM, "two": OPTIM}, "2 optimizers.* At its top stand model, one, two; expected"),
        ({"model": MODEL, "optim": {"param_groups": [{"lr": 0.1}]}}, "there are param_groups, but not as torch makes them"),
        ({"generator": MODEL, "critic": MODEL}, "several models.* At its top stand critic, generator; expected"),
        ({"net": {"other": torch.ones(2)}, "optim": OPTIM}, "no model of the 3 parameters of its optimizer, such as '0.bias'"),
    ],
)
def test_a_state_that_is_not_understood_is_refused_with_what_stands_in_it(
    whole: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadError, match=reason):
        open_checkpoint(save(whole, tmp_path / "ckpt"))


class Harmful:
    """What a pickle can be: a call of any function, here one that makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


Change = Callable[[Path, Any], None]


def metadata_of(folder: Path) -> Any:
    return pickle.loads((folder / ".metadata").read_bytes())


def first(metadata: Any, name: str = "model.0.weight") -> Any:
    return next(info for index, info in metadata.storage_data.items() if index.fqn == name)


def cut(folder: Path, metadata: Any) -> None:
    os.truncate(folder / "__0_0.distcp", os.path.getsize(folder / "__0_0.distcp") - 1)


def flip(folder: Path, metadata: Any) -> None:
    data = bytearray((folder / "__0_0.distcp").read_bytes())
    at = data.index(MODEL["0.weight"].numpy().tobytes())
    data[at] ^= 1
    (folder / "__0_0.distcp").write_bytes(data)


def missing(folder: Path, metadata: Any) -> None:
    (folder / "__0_0.distcp").unlink()


def linked(folder: Path, metadata: Any) -> None:
    (folder / "__0_0.distcp").rename(folder.parent / "elsewhere")
    (folder / "__0_0.distcp").symlink_to(folder.parent / "elsewhere")


def outside(folder: Path, metadata: Any) -> None:
    shutil.copy(folder / "__0_0.distcp", folder.parent / "x")
    first(metadata).relative_path = "../x"


def beyond(folder: Path, metadata: Any) -> None:
    first(metadata).offset += 2**40


def negative(folder: Path, metadata: Any) -> None:
    first(metadata).offset = -5


def overlapping(folder: Path, metadata: Any) -> None:
    found = metadata.state_dict_metadata["model.0.weight"]
    found.chunks.append(ChunkStorageMetadata(found.chunks[0].offsets, torch.Size([1, 5])))


def half(folder: Path, metadata: Any) -> None:
    metadata.state_dict_metadata["model.0.weight"].chunks[0].sizes = torch.Size([2, 5])


def huge(folder: Path, metadata: Any) -> None:
    found = metadata.state_dict_metadata["model.0.weight"]
    found.size = found.chunks[0].sizes = torch.Size([2**40, 5])


def other_dtype(folder: Path, metadata: Any) -> None:
    metadata.state_dict_metadata["model.0.weight"].properties.dtype = torch.int32


def compressed(folder: Path, metadata: Any) -> None:
    first(metadata).transform_descriptors = ["stream.zstd/1"]


def undescribed(folder: Path, metadata: Any) -> None:
    del metadata.state_dict_metadata["model.1.weight"]


def shared(folder: Path, metadata: Any) -> None:
    first(metadata, "optim.param_groups.0.eps").offset = first(metadata, "optim.param_groups.0.amsgrad").offset


def twice(folder: Path, metadata: Any) -> None:
    metadata.planner_data["model.1.weight"] = metadata.planner_data["model.0.weight"]


def harmful(folder: Path, metadata: Any) -> None:
    metadata.storage_meta = Harmful(folder.parent / "mark")


def harmful_tensor(folder: Path, metadata: Any) -> None:
    put(folder, first(metadata), Harmful(folder.parent / "mark"))


def harmful_setting(folder: Path, metadata: Any) -> None:
    put(folder, first(metadata, "optim.param_groups.0.eps"), Harmful(folder.parent / "mark"))


def deflated(folder: Path, metadata: Any) -> None:
    """A stored tensor whose zip says that a few bytes are to become very many."""
    info, packed = first(metadata), BytesIO()
    with open(folder / info.relative_path, "rb") as file:
        file.seek(info.offset)
        stored = zipfile.ZipFile(BytesIO(file.read(info.length)))
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in stored.namelist():
            archive.writestr(name, bytes(2**20) if "/data/" in name else stored.read(name))
    append(folder, info, packed.getvalue())


def put(folder: Path, info: Any, value: object) -> None:
    stored = BytesIO()
    torch.save(value, stored)
    append(folder, info, stored.getvalue())


def append(folder: Path, info: Any, data: bytes) -> None:
    info.offset, info.length = os.path.getsize(folder / info.relative_path), len(data)
    with open(folder / info.relative_path, "ab") as file:
        file.write(data)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (cut, "which has .* cut short"),
        (flip, "not those that were written: CRC-32"),
        (missing, "__0_0.distcp is not in the folder"),
        (linked, "__0_0.distcp is not in the folder, or is no regular file"),
        (outside, "'../x': expected a plain name"),
        (beyond, "bytes 1099511.* cut short"),
        (negative, "expected at most 64 integers from 0"),
        (overlapping, "'model.0.weight': 2 boxes hold element"),
        (half, "'model.0.weight': 0 boxes hold element"),
        (huge, r"a chunk of \[1099511627776, 5\] F32 in \d+ bytes"),
        (other_dtype, "the metadata says TensorSpec.dtype='I32'"),
        (compressed, "compressed by the extension .*stream.zstd/1"),
        (twice, "'model.1.weight' stands at .'model', '0.weight'. .* expected the keys that it names"),
        (undescribed, "'model.1.weight' is stored, and not among"),
        (shared, "0.(eps|amsgrad)' lie in the same bytes of __0_0.distcp"),
        (harmful, "asks for posix.system.* hostile"),
        (harmful_tensor, "asks for posix.system.* hostile"),
        (harmful_setting, "asks for posix.system.* hostile"),
        (deflated, "compressed, which torch.save does not do"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_checkpoint_that_lies_or_is_damaged_or_hostile_is_refused_with_the_reason(
    change: Change, reason: str, tmp_path: Path
) -> None:
    folder = save({"model": MODEL, "optim": OPTIM}, tmp_path / "ckpt")
    metadata = metadata_of(folder)
    change(folder, metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(LoadError, match=reason):
        convert(folder, tmp_path / "run", target_format="ckptlab")
    assert not (tmp_path / "mark").exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x80\x04Nr\xff\xff\xff\x7f.", "broken or hostile .LONG_BINPUT 2147483647"),
        (b"\x80\x04\x8e" + b"\xff" * 5 + b"\0\0\0.", "broken or hostile .expected 1099511627775 bytes"),
        (b"", "broken or hostile"),
        (b"\x80\x04}.", "was it written by torch.distributed.checkpoint"),
    ],
)
def test_a_pickle_that_would_take_endless_memory_or_is_none_of_dcp_is_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(data)
    with pytest.raises(LoadError, match=rf"\.metadata: .*{reason}"):
        open_checkpoint(tmp_path)


def test_what_a_state_cannot_hold_is_left_out_in_words_and_the_rest_is_taken(tmp_path: Path) -> None:
    rest = {"odd": {"path": Path("x"), "n": 1}, "dtype": torch.float32, "plain": (1, None)}
    foreign = open_checkpoint(save({"model": MODEL, "optim": OPTIM, **rest}, tmp_path / "ckpt"))
    assert foreign.state is not None
    assert foreign.state["stateful"] == {"plain": (1, None)}
    odd, dtype = foreign.left
    assert re.match("odd: .* asks for pathlib.*PosixPath", odd)
    assert re.match("dtype: .*torch.dtype cannot be kept exactly", dtype)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    folder = save({"model": MODEL, "optim": OPTIM}, tmp_path / "ckpt")
    foreign = open_checkpoint(folder)
    flip(folder, None)
    with pytest.raises(LoadError, match="CRC-32"):
        write_checkpoint(foreign, tmp_path / "ours", lambda _: None)
    with pytest.raises((CkptlabError, FileExistsError), match="is there already"):
        write_checkpoint(foreign, folder, lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt"]
