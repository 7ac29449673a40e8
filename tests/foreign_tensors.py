"""What a checkpoint of another system holds, against what that system's own library says: bit for bit."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file

from ckptlab.checkpoint.tensor_bytes import DTYPE_NAMES
from ckptlab.format.header import TensorSpec
from ckptlab.interop.foreign import Foreign
from ckptlab.resume.optimizer import put


def tensors_of(foreign: Foreign) -> dict[str, torch.Tensor]:
    """Read every tensor, by its names in the model and in the optimizer; each must be what the description says."""
    read = {}
    for section, specs in foreign.tensors.items():
        for name, spec in specs.items():
            tensor = foreign.read(section, name)
            assert TensorSpec(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape)) == spec, name
            read[name] = tensor
    return read | {alias: read[name] for alias, name in foreign.aliases.items()}


def expected_of(folder: Path) -> dict[str, torch.Tensor]:
    """Return what DeepSpeed says that a checkpoint holds, in float32 where it has 16 bits."""
    expected = load_file(folder / "expected.safetensors")
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in expected.items()}


def following_of(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the gradients of DeepSpeed's own next step, and the weights after it."""
    found = load_file(folder / "next.safetensors")
    weights = {name: tensor for name, tensor in found.items() if "::" not in name}
    return {name: found[f"gradient::{name}"] for name in weights}, weights


def stepped(foreign: Foreign, gradients: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the trained weights after a further step of a plain AdamW that goes on from it."""
    state = foreign.state
    assert state is not None
    assert state["optimizer"]["class"] == "AdamW"
    params = {name: torch.nn.Parameter(foreign.read("model", name)) for name in gradients}
    groups = range(len(state["optimizer"]["groups"]))
    optimizer = torch.optim.AdamW([{"params": [params[n] for n in params if state["groups"][n] == g]} for g in groups])
    kept = {name: foreign.read("optim", name) for name in foreign.tensors["optim"]}
    put(optimizer, {param: name for name, param in params.items()}, kept, state["optimizer"]["groups"], state["values"], ())
    for name, param in params.items():
        param.grad = gradients[name]
    optimizer.step()
    return {name: param.data for name, param in params.items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two hold the same tensors, byte by byte; raises AssertionError with those that are not.

    Returns:
        True, so that a test asserts it.
    """
    different = [name for name in one.keys() | other.keys() if _bits(one.get(name)) != _bits(other.get(name))]
    assert not different, f"not the same: {', '.join(sorted(different))}"
    return True


def _bits(tensor: torch.Tensor | None) -> object:
    return None if tensor is None else (tensor.dtype, tensor.shape, tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
