"""A model's tensors by canonical names: what Hugging Face and the next run expect, whatever wraps the model now."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from ckptlab.errors import UsageError

WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module"}  # of torch.compile and of activation checkpointing


def tensors_of(model: Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return parameters and persistent buffers by name, and further names of tied ones, each to its first name.

    What is tied is told by identity: two names are one tensor if they are one object. Equal memory is no tie.

    Raises:
        UsageError: the state dict holds something that is no tensor.
    """
    own = model.module if isinstance(model, DistributedDataParallel) else model
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[int, str] = {}
    for raw, value in _state_dict(own).items():
        name = ".".join(part for part in raw.split(".") if part not in WRAPPERS)
        if not isinstance(value, Tensor):
            raise UsageError(
                f"{name!r} in the model's state dict is a {type(value).__name__}, no tensor; keep it in a stateful object"
            )
        if first.setdefault(id(value), name) == name:
            tensors[name] = value
        else:
            aliases[name] = first[id(value)]
    return tensors, aliases


def _state_dict(model: Module) -> Mapping[str, Any]:
    state_dict: Mapping[str, Any] = model.state_dict(keep_vars=True)  # the objects themselves; FSDP2 reshards for it
    return state_dict
