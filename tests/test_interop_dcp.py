"""What torch's distributed checkpoint wrote is read bit by bit, what we write it loads, and what lies is refused."""

import os
import pickle
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

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
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

from ckptlab.checkpoint import Contents
from ckptlab.checkpoint import save as save_step
from ckptlab.errors import LoadError, UsageError
from ckptlab.interop import dcp_write, torch_archive
from ckptlab.interop.convert import convert
from ckptlab.interop.dcp import open_checkpoint, write_checkpoint
from ckptlab.interop.foreign import Foreign
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState

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
    assert {"head.weight", "embed.weight"} <= foreign.tensors["model"].keys()
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


class Ties(nn.Module):
    """Tied weights and biases, a frozen tie; and a frozen copy that is no tie, but equal until the next step."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.copy = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.still, self.too = nn.Linear(3, 3), nn.Linear(3, 3)
        self.two.weight, self.two.bias = self.one.weight, self.one.bias
        self.too.weight, self.too.bias = self.still.weight, self.still.bias
        for module in (self.still, self.copy):
            module.requires_grad_(False)


def tied_job(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = Ties()
    optimizer = torch.optim.AdamW([param for param in model.parameters() if param.requires_grad])
    for name in ("weight", "bias"):
        getattr(model.one, name).grad = torch.ones_like(getattr(model.one, name))
    optimizer.step()
    model.copy.load_state_dict(model.one.state_dict())
    return model, optimizer


def test_every_name_of_a_tie_comes_out_and_the_job_goes_on_with_its_own_ties_and_no_others(tmp_path: Path) -> None:
    model, optim = get_state_dict(*tied_job(0))
    saved = sums_of({"model": model, "optim": optim})
    convert(save({"model": model, "optim": optim}, tmp_path / "theirs"), tmp_path / "run", target_format="ckptlab")
    resumed = tied_job(1)
    with Checkpointer(tmp_path / "run", every=100) as checkpointer:
        checkpointer.resume(TrainState(model=resumed[0], optimizer=resumed[1]))
    found = get_state_dict(*resumed)
    assert sums_of({"model": found[0], "optim": found[1]}) == saved
    convert(tmp_path / "run", tmp_path / "back", target_format="dcp")
    assert sums_read(open_checkpoint(tmp_path / "back")) == saved
    for source in ("theirs", "back"):
        convert(tmp_path / source, tmp_path / f"{source}-folder", target_format="huggingface")
        weights = load_file(tmp_path / f"{source}-folder" / "model.safetensors")
        assert {name: sum_of(tensor) for name, tensor in weights.items()} == {n: sum_of(t) for n, t in model.items()}


def test_of_a_step_that_is_no_training_runs_the_optimizers_tensors_do_not_go_to_dcp_and_that_is_said(tmp_path: Path) -> None:
    weight = torch.ones(2)
    save_step(tmp_path / "run", 3, Contents(model={"weight": weight}, optim={"exp_avg::weight": weight}, state={"step": 3}))
    made = convert(tmp_path / "run", tmp_path / "ours", target_format="dcp")
    assert (made.num_tensors, made.num_bytes, made.left) == (1, 8, ("the optimizer's state: 1 tensors, 8 bytes",))
    assert convert(tmp_path / "run", tmp_path / "again", target_format="ckptlab").num_tensors == 2


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


class States(NamedTuple):
    """The job's states, its optimizer's nested and flattened; and an average, by the same names with other values."""

    model: dict[str, Any]
    optim: dict[str, Any]
    flat: dict[str, Any]
    average: dict[str, Any]


@cache
def states() -> States:
    """Return them; beside its parameters the model has an equal-sized frozen one, and one with odd strides."""
    made = job()
    model, optim = get_state_dict(*made)
    _, flat = get_state_dict(*made, options=StateDictOptions(flatten_optimizer_state_dict=True))
    model |= {"frozen": torch.ones(4, 5), "turned": torch.arange(60.0).reshape(3, 4, 5).permute(1, 2, 0)}
    return States(model, dict(optim), dict(flat), {name: tensor + 1 for name, tensor in model.items()})


def usual() -> dict[str, Any]:
    return {"model": states().model, "optim": states().optim}


def save(state_dict: dict[str, Any], folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no ranks
        dcp.save(state_dict, checkpoint_id=folder, no_dist=True)
    return folder


SCHED = {"sched": {"last": [1.5, (2, 3)]}}
TRAIN_STATE = {"train_state": {"step": torch.tensor(2), "seen": b"\0\1"}}
AVERAGE = "a further model, at "
MERGED = "the numbers of param groups"
Shape = Callable[[States], dict[str, Any]]
SHAPES: dict[str, tuple[Shape, dict[str, Any], list[str]]] = {
    "usual": (lambda s: {**usual(), **SCHED, "epoch": 7, "step": 2}, {**SCHED, "epoch": 7}, []),
    "in one object": (lambda s: {"app": {**usual(), **SCHED}, "sched": {"other": 1}}, SCHED, ["sched: another one"]),
    "flat optimizer": (
        lambda s: {"net": s.model, "ema": {"0.weight": torch.ones(40, 50)}, "optimizer": s.flat},
        {},
        ["ema: 'ema.0.weight' is a tensor of 8000 bytes", MERGED],
    ),
    "model at the top": (lambda s: {**s.model, "optimizer": s.flat, **TRAIN_STATE}, TRAIN_STATE, [MERGED]),
    "average inside": (
        lambda s: {"net": s.model, "optim": s.optim, "ema": {"module": s.average, "decay": 0.9}},
        {},
        [f"ema: {AVERAGE}ema.module; the one at net is taken"],
    ),
    "average beside": (lambda s: {**usual(), "ema": s.average}, {}, [f"ema: {AVERAGE}ema; the one at model"]),
    "average outside": (
        lambda s: {"app": usual(), "ema": {"model": s.average}},
        {},
        [f"ema: {AVERAGE}ema.model; the one at app.model"],
    ),
    "teacher of a model at the top": (
        lambda s: {**s.model, "optim": s.optim, "teacher": {"module": s.average}},
        {},
        [f"teacher: {AVERAGE}teacher.module; the one at the top"],
    ),
    "value in the model": (
        lambda s: {"model": {**s.model, "extra": "words"}, "optim": s.optim},
        {},
        ["model.extra: no tensor of the model"],
    ),
    "model around its optimizer": (
        lambda s: {"app": {**s.model, "optim": s.optim, **SCHED}, "ema": s.average},
        SCHED,
        [f"ema: {AVERAGE}ema; the one at app is taken"],
    ),
}


@pytest.mark.parametrize(("whole", "rest", "left"), SHAPES.values(), ids=SHAPES)
def test_model_and_optimizer_are_found_in_every_usual_shape_of_a_state_and_averages_are_named(
    whole: Shape, rest: dict[str, Any], left: list[str], tmp_path: Path
) -> None:
    foreign = open_checkpoint(save(whole(states()), tmp_path / "ckpt"))
    assert sums_read(foreign) == sums_of(usual())
    assert foreign.state is not None
    assert (foreign.state["step"], foreign.state["stateful"]) == (2, rest)
    assert [said[: len(words)] for said, words in zip(foreign.left, left, strict=True)] == left


@pytest.mark.parametrize(
    "shape",
    [lambda s: {"model": s.model, "average": s.model}, lambda s: {**s.model, "average": s.model}, lambda s: s.model],
    ids=["named", "at the top", "alone"],
)
def test_a_model_without_an_optimizer_is_weights_without_a_state(shape: Shape, tmp_path: Path) -> None:
    whole = shape(states())
    foreign = open_checkpoint(save(whole, tmp_path / "ckpt"))
    assert (foreign.state, foreign.tensors["optim"], foreign.tensors["model"].keys()) == (None, {}, states().model.keys())
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
    folder = save({"model": states().model, "optim": states().flat}, tmp_path / "ckpt")
    metadata = metadata_of(folder)
    metadata.state_dict_metadata = dict(reversed(metadata.state_dict_metadata.items()))
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    foreign = open_checkpoint(folder)
    assert foreign.state is not None
    assert foreign.state["groups"] == {"0.weight": 0, "1.weight": 0, "0.bias": 1}


def test_an_adamw_of_which_few_settings_are_known_is_written_with_all_that_a_load_asks_for(tmp_path: Path) -> None:
    foreign = open_checkpoint(save(usual(), tmp_path / "ckpt"))
    assert foreign.state is not None
    few = {**foreign.state, "optimizer": {"class": "AdamW", "groups": [{"lr": 0.5}] * 2}}
    write_checkpoint(replace(foreign, state=few), tmp_path / "ours", lambda _: None)
    found = open_checkpoint(tmp_path / "ours").state
    assert found is not None
    group, _ = found["optimizer"]["groups"]
    assert (group["lr"], group.keys()) == (0.5, foreign.state["optimizer"]["groups"][0].keys())


def test_the_steps_are_the_most_that_any_parameter_had_and_another_count_of_the_job_is_said(tmp_path: Path) -> None:
    whole = deepcopy(usual())
    whole["optim"]["state"]["0.bias"]["step"] -= 1  # it had no gradient once
    foreign = open_checkpoint(save({**whole, "step": 9}, tmp_path / "ckpt"))
    assert foreign.state is not None
    assert (foreign.state["step"], foreign.left) == (2, ("the job's own count of steps, 9: the optimizer has done 2",))


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        (lambda s: {"model": s.model, "optim": job()[1].state_dict()}, "parameters are numbers.*get_optimizer_state_dict"),
        (
            lambda s: {"model": s.model, "one": s.optim, "two": s.optim},
            "2 optimizers.* At its top stand model, one, two; expec",
        ),
        (lambda s: {"model": s.model, "optim": {"param_groups": [{"lr": 0.1}]}}, "there are param_groups, but not as torch"),
        (lambda s: {"generator": s.model, "critic": s.model}, "several models.* At its top stand critic, generator; expected"),
        (lambda s: {"net": s.model, "ema": {"model": s.average}}, "several models, at"),
        (lambda s: {"net": s.model, "ema": s.average, "optim": s.optim}, "several models, at"),
        (lambda s: {**s.average, **usual()}, "several models, at"),
        (lambda s: {"net": {"other": torch.ones(2)}, "optim": s.optim}, "no model of the 3 parameters .* such as '0.bias'"),
        (lambda s: {"model": s.model, "optim": with_state_of_another(s.optim)}, "has a state of 'other', which is no param"),
        (lambda s: {"model": s.model, "optim": {**s.flat, "state.other.step": 1.0}}, "'step::other' is of no parameter"),
    ],
)
def test_a_state_that_is_not_understood_is_refused_with_what_stands_in_it(whole: Shape, reason: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=reason):
        open_checkpoint(save(whole(states()), tmp_path / "ckpt"))


def with_state_of_another(optim: dict[str, Any]) -> dict[str, Any]:
    return {**optim, "state": {**optim["state"], "other": {"step": torch.tensor(1.0)}}}


@pytest.mark.parametrize("names", [("a", "a.b"), ("a.b", "a")])
def test_a_place_that_is_both_a_tensor_and_a_dict_is_refused(names: tuple[str, str], tmp_path: Path) -> None:
    folder = save({name: torch.ones(2) for name in names}, tmp_path / "ckpt")
    metadata = metadata_of(folder)
    metadata.planner_data["a.b"] = ("a", "b")
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(LoadError, match="stands inside a tensor or value of the same checkpoint"):
        open_checkpoint(folder)


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
    at = data.index(states().model["0.weight"].numpy().tobytes())
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


def endless(folder: Path, metadata: Any) -> None:
    """More bytes than a number of 64 bits can say."""
    found = metadata.state_dict_metadata["model.0.weight"]
    found.size = found.chunks[0].sizes = torch.Size([2**62, 5])


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
        (endless, r"a chunk of \[4611686018427387904, 5\] F32 in \d+ bytes"),
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
    folder = save(usual(), tmp_path / "ckpt")
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
    rest: dict[str, Any] = {"odd": {"path": Path("x"), "n": 1}, "dtype": torch.float32, "plain": (1, None)}
    foreign = open_checkpoint(save({**usual(), **rest}, tmp_path / "ckpt"))
    assert foreign.state is not None
    assert foreign.state["stateful"] == {"plain": (1, None)}
    odd, dtype = foreign.left
    assert re.match("odd: .* asks for pathlib.*PosixPath", odd)
    assert re.match("dtype: .*torch.dtype cannot be kept exactly", dtype)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    folder = save(usual(), tmp_path / "ckpt")
    foreign = open_checkpoint(folder)
    flip(folder, None)
    with pytest.raises(LoadError, match="CRC-32"):
        write_checkpoint(foreign, tmp_path / "ours", lambda _: None)
    with pytest.raises(FileExistsError, match="is there already"):
        write_checkpoint(foreign, folder, lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt"]


CHANGES: list[tuple[Callable[[Foreign], Foreign], type[Exception], str]] = [
    (lambda f: replace(f, state={**(f.state or {}), "stateful": {"model": 1}}), UsageError, r"\['model'\] stand in its state"),
    (lambda f: replace(f, state={**(f.state or {}), "stateful": {"a": {"b": 1}, "a.b": 2}}), UsageError, "and two become one"),
    (lambda f: replace(f, read=lambda *name: f.read(*name).double()), LoadError, "is torch.float64 .*, expected F32"),
]


@pytest.mark.parametrize(("change", "error", "reason"), CHANGES, ids=["name of a part", "joined names", "another dtype"])
def test_what_dcp_would_mix_up_and_what_is_not_as_described_is_not_written(
    change: Callable[[Foreign], Foreign], error: type[Exception], reason: str, tmp_path: Path
) -> None:
    foreign = change(open_checkpoint(save(usual(), tmp_path / "ckpt")))
    with pytest.raises(error, match=reason):
        write_checkpoint(foreign, tmp_path / "ours", lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt"]
