"""Every dtype, layout in memory and name, bit for bit; canonical names whatever wraps the model."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from ckptlab.checkpoint import Contents, load, save
from ckptlab.checkpoint.tensor_bytes import DTYPES
from ckptlab.errors import SaveError, UsageError
from ckptlab.ranks import World
from ckptlab.resume import TrainState
from ckptlab.resume.model import tensors_of

MODEL_FILE = "model/model-00001-of-00001.safetensors"


def bits(tensor: Tensor) -> list[int]:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()


def random_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Any bits at all: NaN payloads, -0.0, infinities and subnormals among them. Bool takes 0 and 1 only."""
    num_bytes = torch.Size(shape).numel() * torch.empty((), dtype=dtype).element_size()
    data = torch.randint(0, 2 if dtype is torch.bool else 256, (num_bytes,), dtype=torch.uint8)
    return data.view(dtype).reshape(shape)


def save_and_load(run: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    step = save(run, 1, Contents(model=tensors))
    filled = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    load(step, lambda manifest, state: Contents(model=filled))
    return filled


def test_every_dtype_comes_back_bit_for_bit_and_safetensors_knows_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = {name: random_bits(dtype, (5, 3)) for name, dtype in DTYPES.items()}
    found = save_and_load(tmp_path, tensors)
    assert {name: bits(tensor) for name, tensor in found.items()} == {name: bits(tensor) for name, tensor in tensors.items()}
    with safe_open(tmp_path / "step-00000001" / MODEL_FILE, framework="pt") as file:
        assert {name: file.get_slice(name).get_dtype() for name in file.keys()} == {name: name for name in DTYPES}  # noqa: SIM118


def test_memory_that_is_not_contiguous_comes_back_in_its_own_layout(tmp_path: Path) -> None:
    base = torch.arange(48.0)
    tensors = {
        "channels last": torch.arange(120.0).reshape(1, 2, 4, 15).contiguous(memory_format=torch.channels_last),
        "transposed": base[:12].reshape(3, 4).t(),
        "every second": base[::2],
        "part": base[5:9],
    }
    step = save(tmp_path, 1, Contents(model=tensors))
    found = load_file(step / MODEL_FILE)
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    filled = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    assert filled["channels last"].is_contiguous(memory_format=torch.channels_last)
    load(step, lambda manifest, state: Contents(model=filled))
    assert all(torch.equal(filled[name], tensor) for name, tensor in tensors.items())


def test_any_name_is_kept_but_the_one_that_safetensors_takes_for_itself(tmp_path: Path) -> None:
    names = ["ọnọdụ", 'a"quoted"', "back\\slash", "..", "a/b", "", "new\nline", "模型.层.0", "x" * 1000]
    found = save_and_load(tmp_path, {name: torch.tensor([float(i)]) for i, name in enumerate(names)})
    assert {name: tensor.tolist() for name, tensor in found.items()} == {name: [float(i)] for i, name in enumerate(names)}
    with pytest.raises(SaveError, match="__metadata__"):
        save(tmp_path, 2, Contents(model={"__metadata__": torch.zeros(1)}))
    assert not (tmp_path / "step-00000002").exists()


def names_under(wrapper: str) -> list[str]:
    inner = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model: nn.Module = nn.Sequential(inner, nn.Linear(2, 2))
    if wrapper == "DDP":
        model = DistributedDataParallel(model)
    elif wrapper == "compiled":
        model = torch.compile(model)
    elif wrapper == "compiled DDP":
        model = torch.compile(DistributedDataParallel(model))
    elif wrapper == "DDP of a compiled part":
        model[0] = torch.compile(inner)
        model = DistributedDataParallel(model)
    elif wrapper == "activation checkpointing":
        model[0] = checkpoint_wrapper(inner)
    elif wrapper == "FSDP2 of a compiled model with activation checkpointing":
        model[0] = checkpoint_wrapper(inner)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        model = torch.compile(model)
    return sorted(TrainState(model=model, optimizer=torch.optim.SGD(model.parameters())).contents().model)


def test_names_are_canonical_under_every_wrapper() -> None:
    plain = sorted(nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), nn.Linear(2, 2)).state_dict())
    wrappers = ["DDP", "compiled", "compiled DDP", "DDP of a compiled part", "activation checkpointing"]
    wrappers.append("FSDP2 of a compiled model with activation checkpointing")
    with World(2) as world:
        for wrapper in wrappers:
            assert world.run(names_under, wrapper) == [plain, plain], wrapper


def test_two_names_that_are_one_without_prefixes_are_refused() -> None:
    inner, outer = nn.Module(), nn.Module()
    inner.register_buffer("scale", torch.ones(1))
    outer.register_buffer("scale", torch.zeros(1))
    outer._orig_mod = inner
    with pytest.raises(UsageError, match=r"'_orig_mod.scale' and another of the model's tensors are called 'scale'"):
        tensors_of(outer)
