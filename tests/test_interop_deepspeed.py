"""Checkpoints that DeepSpeed wrote, opened without it: the small ones of `libraries/deepspeed_fixtures.py`."""

import math
import os
import random
import shutil
import sys
import zipfile
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from foreign_tensors import expected_of, following_of, same, stepped, tensors_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptlab.errors import LoadError
from ckptlab.interop.deepspeed import open_checkpoint
from ckptlab.interop.torch_file import TorchFile
from ckptlab.interop.zero import in_parts, in_runs

FIXTURES = Path(__file__).parent / "libraries/fixtures/deepspeed"
CASES = sorted(path.name for path in FIXTURES.iterdir())
TRAINED = ("embed.weight", "hidden.bias", "hidden.weight", "scale")
GROUPS = {"embed.weight": 0, "hidden.weight": 0, "hidden.bias": 1, "scale": 1}
NEEDS_STATE = "no exp_avg_sq; not whole, saved before the first step, or not of Adam"


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[str], Path]:
    """Copy a fixture, to be damaged; returns the folder of its tag."""

    def copy(name: str) -> Path:
        shutil.copytree(FIXTURES / name, tmp_path / name)
        return next(path for path in (tmp_path / name).iterdir() if path.is_dir())

    return copy


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Callable[[Any], object]], None]:
    """Change what is in a file, and save it as DeepSpeed does; its classes stand here under their own names."""
    kinds = {
        ("deepspeed.runtime.zero.config", "ZeroStageEnum"): Enum(
            "ZeroStageEnum", {"optimizer_states": 1, "gradients": 2, "weights": 3}, type=int
        ),
        ("deepspeed.utils.tensor_fragment", "fragment_address"): type("fragment_address", (), {}),
        ("deepspeed.runtime.fp16.loss_scaler", "LossScaler"): type("LossScaler", (), {}),
    }
    for (module, name), kind in kinds.items():
        kind.__module__ = module
        for end in range(1, module.count(".") + 2):
            monkeypatch.setitem(sys.modules, part := ".".join(module.split(".")[:end]), ModuleType(part))
        setattr(sys.modules[module], name, kind)

    def change(path: Path, how: Callable[[Any], object]) -> None:
        value = torch.load(path, weights_only=False)
        how(value)
        torch.save(value, path)

    return change


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_is_bit_for_bit_what_deepspeed_says(case: str) -> None:
    foreign = open_checkpoint(FIXTURES / case)
    steps = {f"step::{name}": torch.tensor(3.0) for name in TRAINED}
    assert same(tensors_of(foreign), expected_of(FIXTURES / case) | steps)
    assert foreign.aliases == {"head.weight": "embed.weight"}
    assert foreign.state is not None
    assert (foreign.state["step"], foreign.state["groups"]) == (3, GROUPS)
    assert foreign.state["stateful"] == {}
    assert any("the state of lr_scheduler, which is no scheduler of torch" in line for line in foreign.left)
    assert "the client state 'epoch'" in foreign.left
    assert not any("frozen" in line for line in foreign.left)


@pytest.mark.parametrize("case", [case for case in CASES if "elastic" not in case])
def test_a_further_step_of_a_plain_adamw_is_bit_for_bit_the_one_that_deepspeed_made(case: str) -> None:
    gradients, weights = following_of(FIXTURES / case)
    assert weights.keys() == set(TRAINED)
    assert same(stepped(open_checkpoint(FIXTURES / case), gradients), weights)


def test_settings_that_were_not_saved_are_said_to_be_missing() -> None:
    foreign = open_checkpoint(FIXTURES / "stage2-2ranks-bf16-elastic")
    assert foreign.state is not None
    assert foreign.state["optimizer"] == {"class": None, "groups": [{}, {}]}
    assert any("settings of the param groups" in line for line in foreign.left)


def test_the_model_files_that_a_trainer_puts_beside_the_tags_go_along_and_no_weights_of_others(copy_of, tmp_path: Path) -> None:
    folder = copy_of("stage3-4ranks-bf16").parent
    along = {"config.json", "tokenizer.model", "merges.txt"}
    for name in (*along, "model.safetensors.index.json", "model-00001-of-00002.safetensors", "trainer.py"):
        (folder / name).write_text("{}")
    (folder / "linked.json").symlink_to("config.json")
    found = {name: folder / name for name in along} | {"linked.json": folder / "config.json"}
    assert open_checkpoint(folder).model_files == found
    (folder / "linked.json").unlink()
    (folder / "linked.json").symlink_to("../elsewhere.json")
    (tmp_path / "elsewhere.json").write_text("{}")
    with pytest.raises(LoadError, match=r"linked\.json is a link to .* outside the folder"):
        open_checkpoint(folder)


def without_frozen(value: dict[str, Any]) -> None:
    value.update(frozen_param_shapes=None, frozen_param_fragments=None)
    value["module"] = {name: item for name, item in value["module"].items() if "frozen" not in name}


@pytest.mark.parametrize("case", ["stage2-4ranks-fp32-round-robin", "stage3-2ranks-fp32"])
def test_frozen_parameters_that_were_not_saved_are_said_to_be_missing(case: str, copy_of, edit) -> None:
    tag = copy_of(case)
    for path in tag.glob("*_model_states.pt"):
        edit(path, without_frozen)
    foreign = open_checkpoint(tag)
    assert not any("frozen" in name for name in foreign.tensors["model"])
    assert any("frozen parameters" in line for line in foreign.left)


def test_the_state_of_a_scheduler_of_torch_is_kept(copy_of, edit) -> None:
    tag, state = copy_of(FOUR), {"last_epoch": 3, "step_size": 2}
    edit(tag / MODEL, lambda value: value.update(lr_scheduler=state))
    foreign = open_checkpoint(tag)
    assert foreign.state is not None
    assert foreign.state["stateful"] == {"scheduler": state}
    assert not any("lr_scheduler" in line for line in foreign.left)


@pytest.mark.parametrize(
    ("marks", "told", "expected"),
    [
        ([False, False], {}, "Adam"),
        ([True, False], {}, None),
        ([None, None], {}, None),
        ([None, None], {"type": "AdamW"}, "AdamW"),
        ([None, None], {"type": "Adam"}, "AdamW"),
        ([None, None], {"type": "Adam", "params": {"adam_w_mode": False}}, "Adam"),
    ],
)
def test_adam_is_told_from_adamw_by_the_param_groups_else_by_the_configuration(marks, told, expected, copy_of, edit) -> None:
    def mark(part: dict[str, Any]) -> None:
        for group, decoupled in zip(param_groups(part), marks, strict=True):
            group.update(decoupled_weight_decay=decoupled, amsgrad=False, lr=torch.tensor(0.5))

    tag = copy_of(FOUR)
    edit(tag / OPTIM.format(0), mark)
    edit(tag / MODEL, lambda value: value["ds_config"].update(optimizer=told))
    foreign = open_checkpoint(tag)
    assert foreign.state is not None
    assert foreign.state["optimizer"]["class"] == expected
    assert [group["lr"] for group in foreign.state["optimizer"]["groups"]] == [torch.tensor(0.5)] * 2


class Hostile:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.victim}",)


@pytest.mark.parametrize(
    ("case", "file"),
    [
        ("stage2-4ranks-bf16-aligned", "mp_rank_00_model_states.pt"),
        ("stage2-4ranks-bf16-aligned", "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"),
        ("stage3-2ranks-universal", "zero/scale/exp_avg.pt"),
    ],
)
def test_a_hostile_pickle_is_refused_and_nothing_of_it_is_run(case: str, file: str, copy_of, tmp_path: Path) -> None:
    torch.save({"module": Hostile(tmp_path / "ran")}, copy_of(case) / file)
    with pytest.raises(LoadError, match=r"posix\.system"):
        open_checkpoint(tmp_path / case)
    assert not (tmp_path / "ran").exists()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def copied(path: Path, name: str) -> None:
    shutil.copy(path, path.with_name(name))


MODEL, OPTIM = "mp_rank_00_model_states.pt", "zero_pp_rank_{}_mp_rank_00_optim_states.pt"
PART, MODEL_3 = "zero_pp_rank_{}_mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_model_states.pt"
FOUR, STAGE_3, UNIVERSAL = "stage2-4ranks-fp32-round-robin", "stage3-2ranks-fp32", "stage2-2ranks-universal"
DAMAGE: list[tuple[str, str, Callable[[Path], object], str]] = [
    (FOUR, OPTIM.format(1), Path.unlink, "the optim states of rank 1 are missing"),
    (FOUR, OPTIM.format(3), Path.unlink, "3 files of optim states, expected 4"),
    (FOUR, MODEL, Path.unlink, "no model states"),
    (FOUR, OPTIM.format(2), cut, "rank_2.*cut short"),
    (FOUR, OPTIM.format(3), lambda path: copied(path, OPTIM.format(4)), "5 files of optim states, expected 4"),
    (FOUR, OPTIM.format(3), lambda path: copied(path, "bf16_" + path.name), "of the same rank, of two saves"),
    (
        FOUR,
        MODEL,
        lambda path: copied(path, "mp_rank_01_model_states.pt"),
        "mp_rank_01.*only checkpoints of data-parallel ranks",
    ),
    (FOUR, MODEL, lambda path: copied(path, "layer_01-model_00-model_states.pt"), "pipeline stage"),
    (FOUR, OPTIM.format(0), lambda path: (path.rename(path.parent.parent / "x"), path.symlink_to("../x")), "no regular file"),
    (FOUR, "../latest", lambda path: path.write_text("../elsewhere"), "no plain name"),
    (FOUR, "../latest", lambda path: path.write_text("global_step9"), "no such folder"),
    (FOUR, "../latest", Path.unlink, "neither latest nor states of ranks"),
    (STAGE_3, PART.format(1), Path.unlink, "1 files of model states, expected 2"),
    (STAGE_3, OPTIM.format(0), Path.unlink, "the optim states of rank 0 are missing"),
    (UNIVERSAL, "zero/scale/exp_avg_sq.pt", Path.unlink, f"scale: {NEEDS_STATE}"),
    (UNIVERSAL, "zero/scale/exp_avg.pt", cut, "scale/exp_avg.*cut short"),
    (UNIVERSAL, "zero/scale", shutil.rmtree, "scale is missing"),
    (UNIVERSAL, "zero/optimizer_state.pt", Path.unlink, "optimizer_state.pt is missing"),
]


@pytest.mark.parametrize(("case", "file", "damage", "says"), DAMAGE, ids=[f"{d[0]}: {d[3]}" for d in DAMAGE])
def test_a_checkpoint_that_is_not_whole_is_refused(case: str, file: str, damage, says: str, copy_of) -> None:
    tag = copy_of(case)
    damage(tag / file)
    with pytest.raises(LoadError, match=says):
        open_checkpoint(tag.parent)


def test_a_flipped_bit_is_found_when_the_tensor_is_read(copy_of) -> None:
    tag = copy_of(FOUR)
    data = bytearray((tag / OPTIM.format(0)).read_bytes())
    moment = expected_of(tag.parent)["exp_avg::embed.weight"].reshape(-1)[3].numpy().tobytes()
    data[data.index(moment)] ^= 1
    (tag / OPTIM.format(0)).write_bytes(data)
    foreign = open_checkpoint(tag)
    with pytest.raises(LoadError, match=r"rank_0.*not those that were written"):
        foreign.read("optim", "exp_avg::embed.weight")


def moments(part: dict[str, Any]) -> dict[str, Any]:
    return part["optimizer_state_dict"]["base_optimizer_state"]["state"][0]


def param_groups(part: dict[str, Any]) -> list[dict[str, Any]]:
    return part["optimizer_state_dict"]["base_optimizer_state"]["param_groups"]


def as_radam(part: dict[str, Any]) -> None:
    for group in param_groups(part):
        group.pop("amsgrad", None)
        group["decoupled_weight_decay"] = False


def lengthen(part: dict[str, Any]) -> None:
    weights = part["optimizer_state_dict"]["single_partition_of_fp32_groups"]
    weights[0] = torch.cat([weights[0], torch.zeros(8)])
    moments(part).update({key: torch.cat([value, torch.zeros(8)]) for key, value in moments(part).items() if value.dim()})


def shorten(part: dict[str, Any]) -> None:
    weights = part["optimizer_state_dict"]["single_partition_of_fp32_groups"]
    weights[0] = weights[0][:-1]
    moments(part).update({key: value[:-1] for key, value in moments(part).items() if value.dim()})


def rename(value: dict[str, Any], name: str) -> None:
    value["param_shapes"][0][name] = value["param_shapes"][0].pop("embed.weight")


EDITS: list[tuple[str, str, Callable[[Any], object], str]] = [
    (FOUR, OPTIM.format(3), lambda part: moments(part).pop("exp_avg_sq"), f"rank_3.*{NEEDS_STATE}"),
    (FOUR, OPTIM.format(3), lambda part: moments(part)["step"].add_(1), "at other steps"),
    (FOUR, OPTIM.format(3), lambda part: moments(part).update(step=torch.ones(2)), "the step is"),
    (FOUR, OPTIM.format(3), lambda part: moments(part).update(exp_avg=moments(part)["exp_avg"].half()), "F16.* in .*rank_3"),
    (FOUR, OPTIM.format(3), lambda part: moments(part).update(exp_avg=torch.zeros(3)), "beyond the .* of the weights"),
    (
        FOUR,
        OPTIM.format(3),
        lambda part: part["optimizer_state_dict"].update(partition_count=[2, 2]),
        "keep the files of one save",
    ),
    (FOUR, OPTIM.format(3), lambda part: moments(part).update(exp_avg=torch.zeros(99)), "beyond the .* of the weights, .*8"),
    (FOUR, OPTIM.format(0), shorten, "group 0: .*elements; the parameters embed.weight"),
    (FOUR, OPTIM.format(3), lengthen, "group 0: .*elements; the parameters .* need"),
    (FOUR, MODEL, lambda value: value.update(dp_world_size=2), "keep the files of one save"),
    (FOUR, MODEL, lambda value: value.update(mp_world_size=2), "the model is split"),
    (FOUR, MODEL, lambda value: value["param_shapes"].reverse(), "group 0"),
    (FOUR, MODEL, lambda value: value["param_shapes"][0].move_to_end("embed.weight"), "says that parameters lie at"),
    (FOUR, MODEL, lambda value: value["ds_config"].update(optimizer={"type": "Lamb"}), "the optimizer is lamb"),
    (FOUR, OPTIM.format(0), as_radam, "other settings than Adam"),
    (FOUR, MODEL, lambda value: value["param_shapes"][0].update({"embed.weight": (-11, -5)}), "has the shape"),
    (FOUR, MODEL, lambda value: value.pop("shared_params"), "no ZeRO checkpoint"),
    (FOUR, MODEL, lambda value: value.update(param_shapes=[7, 7]), "'param_shapes' holds a int"),
    (
        STAGE_3,
        MODEL_3,
        lambda value: value["frozen_param_fragments"].update({"frozen.weight": torch.ones(3)}),
        "frozen.weight need 18",
    ),
    (
        STAGE_3,
        MODEL_3,
        lambda value: value["frozen_param_fragments"].update({"frozen.weight": torch.ones(18).half()}),
        "'frozen.weight' are of several dtypes",
    ),
    (UNIVERSAL, MODEL, lambda value: rename(value, "../../../elsewhere"), "no plain name"),
    (UNIVERSAL, MODEL, lambda value: value["param_shapes"][0].update({"embed.weight": (5, 11)}), "the model states tell of"),
]


@pytest.mark.parametrize(("case", "file", "how", "says"), EDITS, ids=[f"{e[0]}: {e[3]}" for e in EDITS])
def test_files_that_do_not_fit_together_are_refused(case: str, file: str, how, says: str, copy_of, edit) -> None:
    tag = copy_of(case)
    edit(tag / file, lambda value: None)  # what is refused below is refused for the change
    assert same(tensors_of(open_checkpoint(tag)), tensors_of(open_checkpoint(FIXTURES / case)))
    edit(tag / file, how)
    with pytest.raises(LoadError, match=says):
        open_checkpoint(tag)


def test_whatever_stands_in_a_pickle_ends_in_tensors_or_a_load_error(copy_of) -> None:
    tag, dice = copy_of(STAGE_3), random.Random(0)
    path = tag / OPTIM.format(1)
    with zipfile.ZipFile(path) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    (pickled,) = (name for name in entries if name.endswith("data.pkl"))
    refused = 0
    for _ in range(150):
        data = bytearray(entries[pickled])
        for _ in range(dice.randint(1, 3)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in {**entries, pickled: bytes(data)}.items():
                archive.writestr(name, content)
        try:
            tensors_of(open_checkpoint(tag))
        except LoadError:
            refused += 1
    assert 50 < refused < 150


@pytest.mark.parametrize(("case", "file"), [(FOUR, MODEL), (FOUR, OPTIM.format(0)), (STAGE_3, MODEL_3)])
def test_whatever_stands_where_something_else_should_is_read_or_refused(case: str, file: str, copy_of, edit) -> None:
    tag, dice, refused = copy_of(case), random.Random(0), 0
    saved = (tag / file).read_bytes()

    def put(value: dict[str, Any]) -> None:
        value = value.get("optimizer_state_dict", value)
        value[dice.choice(list(value))] = dice.choice([7, "x", [7], [[7]], [{}], {0: 7}, {"0": [{}]}, (torch.ones(2),)])

    for _ in range(60):
        (tag / file).write_bytes(saved)
        edit(tag / file, put)
        try:
            tensors_of(open_checkpoint(tag))
        except LoadError:
            refused += 1
    assert 10 < refused < 60


def test_a_buffer_that_is_a_view_is_read_as_it_was(tmp_path: Path) -> None:
    base = torch.arange(60.0).bfloat16()
    views = {"part": base[7:], "turned": base.view(6, 10).t()[3:, 1:4], "every": base[4::5], "one": base[9], "none": base[:0]}
    torch.save(views, tmp_path / "views.pt")
    file = TorchFile(tmp_path / "views.pt", {})
    for name, view in views.items():
        assert same({name: file.small(file.value[name])}, {name: view.contiguous()})
    run = torch.empty(9)
    file.read_run(file.value["turned"], 5, run)
    assert run.tolist() == views["turned"].float().reshape(-1)[5:14].tolist()


SHAPES = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=5)


@settings(deadline=None)
@given(SHAPES, st.integers(1, 5), st.integers(1, 3))
def test_parameters_laid_end_to_end_and_cut_for_the_ranks_are_found_again(shapes, num_ranks: int, align: int) -> None:
    named = {f"p{i}": shape for i, shape in enumerate(shapes)}
    gaps = [-math.prod(shape) % align for shape in shapes]
    params = {name: torch.rand(math.prod(shape)) for name, shape in named.items()}
    flat = torch.cat([torch.cat([param, torch.zeros(gap)]) for param, gap in zip(params.values(), gaps, strict=True)])
    length = -(-len(flat) // num_ranks)
    ranks = [flat[rank * length : (rank + 1) * length] for rank in range(num_ranks)]
    for name, pieces in in_runs(named, gaps, [len(rank) for rank in ranks]).items():
        found = [ranks[piece.rank][piece.begin : piece.begin + piece.length] for piece in pieces]
        assert torch.equal(torch.cat([torch.empty(0), *found]), params[name])


@settings(deadline=None)
@given(SHAPES, st.integers(1, 5))
def test_parameters_cut_each_for_the_ranks_are_found_again(shapes, num_ranks: int) -> None:
    named = {f"p{i}": shape for i, shape in enumerate(shapes)}
    params = {name: torch.rand(math.prod(shape)) for name, shape in named.items()}
    padded = [torch.cat([param, torch.zeros(-len(param) % num_ranks)]) for param in params.values()]
    ranks = [torch.cat([whole.view(num_ranks, -1)[rank] for whole in padded]) for rank in range(num_ranks)]
    for name, pieces in in_parts(named, [len(rank) for rank in ranks]).items():
        found = [ranks[piece.rank][piece.begin : piece.begin + piece.length] for piece in pieces]
        assert torch.equal(torch.cat([torch.empty(0), *found]), params[name])
