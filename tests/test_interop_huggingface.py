"""Weights go from a sharded run to Hugging Face and back unchanged; what lies about itself is refused and leaves nothing."""

import json
import shutil
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedConfig

from ckptlab.checkpoint.plan import FILES
from ckptlab.checkpoint.tensor_bytes import DTYPES
from ckptlab.cli.main import run as ckptlab
from ckptlab.errors import CorruptError, LoadError, ResumeError, StepError
from ckptlab.interop import convert
from ckptlab.interop.huggingface import INDEX, open_folder, write_folder
from ckptlab.interop.step import write_step
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState, load_weights
from ckptlab.steps import verify
from ckptlab.steps.steps import read_step
from ckptlab.storage import RunLock

LLAMA = LlamaConfig(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    dtype="bfloat16",
)
GPT2 = GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=16, tie_word_embeddings=True)
TIED_LLAMA = LlamaConfig(**{**LLAMA.to_dict(), "tie_word_embeddings": True})
SPLIT = 20_000  # bytes a file
FIRST = "model-00001-of-00002.safetensors"
SECOND = "model-00002-of-00002.safetensors"


def made(config: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config.parent))


def save_sharded(folder: Path) -> None:
    """Make the model of each configuration below, shard it, and save it in both ways as step 7."""
    for config in sorted(folder.glob("*/config.json")):
        model = made(config)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        optimizer = torch.optim.AdamW(model.parameters())
        for number, param in enumerate(model.parameters()):
            optimizer.state[param] = {"step": torch.tensor(7.0), "exp_avg": torch.full_like(param.detach(), number)}
        state = TrainState(model=model, optimizer=optimizer, model_files={"config.json": config})
        state.step = 7
        for files in FILES:
            with Checkpointer(config.parent / files, files=files) as checkpointer:
                checkpointer.save(state)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs of two ranks, by the type of the model and the way in which they were saved."""
    folder = tmp_path_factory.mktemp("saved")
    for config in (LLAMA, GPT2):
        config.save_pretrained(folder / config.model_type)
    with World(2) as world:
        world.run(save_sharded, folder)
    return folder


def tensors_in(folder: Path) -> dict[str, Tensor]:
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def bits(tensors: dict[str, Tensor]) -> dict[str, tuple[torch.dtype, torch.Size, bytes]]:
    return {
        name: (t.dtype, t.shape, t.contiguous().view(-1).view(torch.uint8).numpy().tobytes()) for name, t in tensors.items()
    }


def opened_by_transformers(folder: Path) -> dict[str, Tensor]:
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model.state_dict()


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_what_two_ranks_saved_becomes_a_folder_split_and_merged_that_transformers_opens(
    kind: str, saved: Path, tmp_path: Path
) -> None:
    model = made(saved / kind / "config.json")
    expected = bits(model.state_dict())
    split = convert(saved / kind / "by_rank", tmp_path / "split", target_format="huggingface", max_file_bytes=SPLIT)
    convert(tmp_path / "split", tmp_path / "merged", target_format="huggingface")
    convert(tmp_path / "merged", tmp_path / "again", target_format="huggingface", max_file_bytes=SPLIT)
    assert sum("optimizer" in what for what in split.left) == 1
    assert bits(opened_by_transformers(tmp_path / "split")) == expected
    assert bits(opened_by_transformers(tmp_path / "merged")) == expected
    assert {path.name for path in (tmp_path / "merged").iterdir()} == {"config.json", "model.safetensors"}

    names = sorted(path.name for path in (tmp_path / "split").iterdir())
    sizes = [sum(t.nbytes for t in load_file(path).values()) for path in (tmp_path / "split").glob("*.safetensors")]
    assert len(sizes) > 2
    assert max(sizes) <= SPLIT
    assert split.num_bytes == sum(sizes)
    assert json.loads((tmp_path / "split" / INDEX).read_text())["metadata"]["total_size"] == sum(sizes)
    assert [(tmp_path / "again" / name).read_bytes() for name in names] == [
        (tmp_path / "split" / name).read_bytes() for name in names
    ]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_what_each_rank_wrote_for_itself_becomes_byte_for_byte_what_all_wrote_together(
    kind: str, saved: Path, tmp_path: Path
) -> None:
    result = convert(saved / kind / "by_rank", tmp_path, target_format="ckptlab")
    assert result.path.name == "step-00000007"
    together, found = read_step(saved / kind / "by_tensor/step-00000007").manifest, read_step(result.path).manifest
    assert together is not None
    assert found is not None
    assert found.files == {name: file for name, file in together.files.items() if not name.startswith("ranks/")}
    assert (found.tensors, found.aliases) == (together.tensors, together.aliases)
    other = convert(saved / kind / "by_rank", tmp_path, target_format="ckptlab", step=8)
    states = [json.loads((step / "state.json").read_text()) for step in (result.path, other.path)]
    assert states[1] == {**states[0], "step": 8}


@pytest.mark.parametrize("shard", ["20KB", "1GB"])
@pytest.mark.parametrize("config", [TIED_LLAMA, GPT2], ids=lambda config: config.model_type)
def test_a_folder_that_transformers_wrote_becomes_a_step_of_the_same_bytes(
    config: PreTrainedConfig, shard: str, tmp_path: Path
) -> None:
    folder, run = tmp_path / "folder", tmp_path / "runs/mine"
    config.save_pretrained(tmp_path)
    model = made(tmp_path / "config.json")
    model.save_pretrained(folder, max_shard_size=shard)
    assert (folder / INDEX).exists() == (shard == "20KB")

    result = convert(folder, run, target_format="ckptlab", step=3)
    step = read_step(run / "step-00000003")
    assert (result.path, result.left) == (step.path, ())
    assert list(verify(step)) == []
    assert step.manifest is not None
    assert step.manifest.saved_by["converted_from"] == "Hugging Face"
    found = tensors_in(run / "step-00000003/model")
    assert bits(found) == bits(tensors_in(folder))
    assert "lm_head.weight" not in found
    assert (run / "step-00000003/model/config.json").read_bytes() == (folder / "config.json").read_bytes()

    other = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    assert bits(other.state_dict()) != bits(model.state_dict())
    load_weights(step.path, other)
    assert bits(other.state_dict()) == bits(model.state_dict())
    state = TrainState(model=other, optimizer=torch.optim.AdamW(other.parameters()))
    with Checkpointer(run) as checkpointer, pytest.raises(ResumeError, match="not a training run's"):
        checkpointer.resume(state)


def two_files(folder: Path) -> None:
    """Write a, b into the first file and c into the second, and an index that says so."""
    folder.mkdir()
    for file, names in ((FIRST, "ab"), (SECOND, "c")):
        save_file({name: torch.arange(5.0) + ord(name) for name in names}, folder / file)
    write_index(folder, {"a": FIRST, "b": FIRST, "c": SECOND}, 60)


def write_index(folder: Path, weight_map: object, total: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))


def cut_short(folder: Path) -> None:
    data = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(data[:-1])


def put_outside(folder: Path) -> None:
    (folder / SECOND).rename(folder.parent / SECOND)
    (folder / SECOND).symlink_to(folder.parent / SECOND)


def put_twice(folder: Path) -> None:
    save_file({name: torch.arange(5.0) for name in "bc"}, folder / SECOND)


def named_outside(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / SECOND).rename(folder.parent / "c.safetensors")
        write_index(folder, {"a": FIRST, "b": FIRST, "c": name.format(folder.parent)}, 60)

    return change


LIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a name that its file lacks": (
        lambda f: write_index(f, {"a": FIRST, "b": FIRST, "c": SECOND, "d": SECOND}, 80),
        f"{SECOND} does not hold 'd'",
    ),
    "a name in another file": (
        lambda f: write_index(f, {"a": FIRST, "b": SECOND, "c": SECOND}, 60),
        f"{FIRST} holds 'b', which by {INDEX} is in {SECOND}",
    ),
    "a tensor in two files": (put_twice, f"{SECOND} holds 'b', which by {INDEX} is in {FIRST}"),
    "a tensor of which it does not know": (
        lambda f: write_index(f, {"a": FIRST, "c": SECOND}, 40),
        f"{FIRST} holds 'b', which by {INDEX} is nowhere",
    ),
    "a file that is missing": (lambda f: (f / SECOND).unlink(), f"{SECOND} is missing"),
    "a file in a folder above": (named_outside("../c.safetensors"), "must not lead out of the folder"),
    "a file at an absolute path": (named_outside("{}/c.safetensors"), "must not lead out of the folder"),
    "a link that leads out": (put_outside, "which is outside the folder"),
    "another total size": (
        lambda f: write_index(f, {"a": FIRST, "b": FIRST, "c": SECOND}, 61),
        "total_size is 61, but its files hold 60 bytes",
    ),
    "a file that was cut short": (cut_short, "it may be cut short"),
    "no object": (lambda f: (f / INDEX).write_text("[]"), "expected an object"),
    "a file's name that is no text": (lambda f: write_index(f, {"a": 1}, 20), "expected a string"),
    "nothing": (lambda f: write_index(f, {}, 0), "holds no tensors"),
}


@pytest.mark.parametrize(("change", "reason"), LIES.values(), ids=LIES.keys())
def test_an_index_that_lies_is_refused_with_the_reason_before_anything_is_made(
    change: Callable[[Path], object], reason: str, tmp_path: Path
) -> None:
    two_files(tmp_path / "folder")
    assert len(open_folder(tmp_path / "folder").tensors["model"]) == 3
    change(tmp_path / "folder")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(LoadError) as refused:
        convert(tmp_path / "folder", tmp_path / "new/run", target_format="ckptlab")
    assert reason in str(refused.value)
    assert sorted(tmp_path.iterdir()) == before


def test_a_failure_in_the_middle_leaves_nothing_and_an_old_run_as_it_was(tmp_path: Path) -> None:
    two_files(tmp_path / "folder")
    foreign = open_folder(tmp_path / "folder")

    def read(section: str, name: str) -> Tensor:
        return foreign.read(section, name) if name == "a" else torch.zeros(4)

    lying = replace(foreign, read=read)
    written: list[int] = []
    with pytest.raises(LoadError, match="'b' was said to be F32 \\[5\\], and F32 \\[4\\] was read"):
        write_step(lying, tmp_path / "runs/new", 1, written.append)
    with pytest.raises(LoadError, match="'b' was said to be"):
        write_folder(lying, tmp_path / "models/new", written.append, 40)
    assert written == [20, 20]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]

    convert(tmp_path / "folder", tmp_path / "run", target_format="ckptlab")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(LoadError):
        write_step(lying, tmp_path / "run", 1, written.append)
    with pytest.raises(StepError, match="is there already"):
        convert(tmp_path / "folder", tmp_path / "run", target_format="ckptlab")
    (tmp_path / "run/step-00000009").mkdir()  # not whole: a save would set it aside, but it may be another system's
    with pytest.raises(StepError, match="is there already"):
        convert(tmp_path / "folder", tmp_path / "run", target_format="ckptlab", step=9)
    lock = RunLock.take(tmp_path / "run")
    with pytest.raises(StepError, match="in use"):
        convert(tmp_path / "folder", tmp_path / "run", target_format="ckptlab", step=2)
    lock.release()
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_tensor_is_gone_from_memory_before_the_next_is_read(tmp_path: Path) -> None:
    two_files(tmp_path / "folder")
    held: list[weakref.ref[object]] = []
    still_held: list[bool] = []

    def read(section: str, name: str) -> Tensor:
        still_held.append(any(array() is not None for array in held))
        array = np.arange(5, dtype=np.float32)
        held.append(weakref.ref(array))
        return torch.from_numpy(array)

    foreign = replace(open_folder(tmp_path / "folder"), read=read)
    write_step(foreign, tmp_path / "run", 1, lambda num_bytes: None)
    write_folder(foreign, tmp_path / "out", lambda num_bytes: None)
    assert still_held == [False] * 6


def test_every_dtype_and_scalars_and_empty_tensors_come_through_both_ways(tmp_path: Path) -> None:
    tensors = {dtype: torch.arange(6).to(DTYPES[dtype]).view(2, 3) for dtype in DTYPES}
    tensors |= {"scalar": torch.tensor(7.0), "empty": torch.empty(0, 3), "name with\nanything::/../in it": torch.ones(1)}
    (tmp_path / "folder").mkdir()
    save_file(tensors, tmp_path / "folder/model.safetensors")
    convert(tmp_path / "folder", tmp_path / "run", target_format="ckptlab")
    convert(tmp_path / "run", tmp_path / "out", target_format="huggingface", max_file_bytes=1)
    assert bits(tensors_in(tmp_path / "run/step-00000000/model")) == bits(tensors_in(tmp_path / "out")) == bits(tensors)


def test_a_damaged_block_of_a_step_is_found_on_the_way_out(tmp_path: Path) -> None:
    two_files(tmp_path / "folder")
    convert(tmp_path / "folder", tmp_path / "run", target_format="ckptlab")
    file = tmp_path / "run/step-00000000/model/model-00001-of-00001.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptError, match=file.name):
        convert(tmp_path / "run", tmp_path / "out", target_format="huggingface")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "run"]


def test_settings_and_tokenizer_go_along_and_what_could_run_stays_behind(tmp_path: Path) -> None:
    folder = tmp_path / "models--me--mine/snapshots/0a1b"
    blobs = tmp_path / "models--me--mine/blobs"
    folder.parent.mkdir(parents=True)
    two_files(folder)
    taken = {"config.json", "tokenizer.json", "tokenizer.model", "merges.txt", "chat_template.jinja", "LICENSE"}
    stays = {"modeling_mine.py", "pytorch_model.bin", "pytorch_model.bin.index.json", "optimizer.pt"}
    for name in taken | stays:
        (folder / name).write_text(name)
    blobs.mkdir()
    for path in sorted(folder.iterdir()):  # as the hub's cache has them
        path.rename(blobs / f"sum-of-{path.name}")
        path.symlink_to(f"../../blobs/sum-of-{path.name}")
    made_of = convert(folder, tmp_path / "out", target_format="huggingface")
    assert {path.name for path in (tmp_path / "out").iterdir()} == taken | {"model.safetensors"}
    assert all((tmp_path / "out" / name).read_text() == name for name in taken)
    assert all(any(name in what for what in made_of.left) for name in stays)
    with safe_open(tmp_path / "out/model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    (blobs / f"sum-of-{SECOND}").rename(tmp_path / "elsewhere")
    (folder / SECOND).unlink()
    (folder / SECOND).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LoadError, match="outside the folder"):
        open_folder(folder)


def test_the_command_tells_formats_apart_what_it_made_and_what_it_left(tmp_path: Path, capsys) -> None:
    two_files(tmp_path / "folder")
    source, run = str(tmp_path / "folder"), str(tmp_path / "run")
    assert ckptlab(["convert", source, run, "--from", "huggingface", "--to", "ckptlab", "--step", "4"]) == 0
    assert "step-00000004: 3 tensors, 60 bytes, from Hugging Face" in capsys.readouterr().out
    assert ckptlab(["verify", run]) == 0
    capsys.readouterr()
    out = str(tmp_path / "out")
    assert ckptlab(["convert", f"{run}/step-00000004", out, "--to", "huggingface", "--max-file-size", "40B", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["tensors"], document["bytes"]) == (out, 3, 60)
    assert [what.split(",")[0] for what in document["left"]] == ["config.json"]
    assert sorted(path.name for path in Path(out).iterdir()) == [FIRST, SECOND, INDEX]
    assert bits(tensors_in(Path(out))) == bits(tensors_in(Path(source)))
    assert ckptlab(["convert", run, f"{run}-again", "--to", "ckptlab"]) == 0
    assert "step-00000004: 3 tensors" in capsys.readouterr().out

    for arguments, code, error in (
        ([source, out, "--to", "huggingface"], 2, "is there already"),
        ([source, run, "--to", "ckptlab", "--max-file-size", "1GB"], 2, "takes no max_file_bytes (--max-file-size)"),
        ([source, f"{out}-2", "--to", "huggingface", "--step", "3"], 2, "takes no step (--step)"),
        ([f"{source}/none", run, "--to", "ckptlab"], 2, "is not there"),
        ([f"{source}/{FIRST}", run, "--to", "ckptlab"], 2, "name the folder"),
        ([str(tmp_path), run, "--to", "ckptlab"], 2, "is none of"),
        ([source, run, "--to", "deepspeed"], 2, "is not one of"),
    ):
        assert ckptlab(["convert", *arguments]) == code
        assert error in capsys.readouterr().err
    shutil.copy(f"{run}/step-00000004/manifest.json", source)
    assert ckptlab(["convert", source, str(tmp_path / "other"), "--to", "ckptlab"]) == 2
    assert "looks like huggingface and like ckptlab" in capsys.readouterr().err
    (tmp_path / "folder/manifest.json").unlink()
    cut_short(tmp_path / "folder")
    assert ckptlab(["convert", source, str(tmp_path / "other"), "--to", "ckptlab"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
