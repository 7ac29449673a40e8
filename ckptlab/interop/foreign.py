"""What any system's checkpoint holds, as all of `ckptlab.interop` sees it: described at once, read tensor by tensor."""

import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ckptlab.checkpoint.tensor_bytes import DTYPES
from ckptlab.format.header import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A checkpoint that was opened: all that it is, but for the values of its tensors.

    Attributes:
        system: who wrote it, in words: "Hugging Face", "PyTorch DCP", "DeepSpeed", "ckptlab".
        path: where it stands.
        tensors: dtype and global shape of every tensor, by section (`model`, `optim`) and name; a tied tensor stands once,
            where the checkpoint tells the tie.
            Of `optim` the names are `<state name>::<fqn>`, as in a step.
        read: section and name to that tensor, whole, on the CPU; raises `LoadError` where the file does not hold it.
        aliases: further names of tied tensors, each to its name in `model`.
        state: what `state.json` of a step holds (see `TrainState`): None where there are only weights.
        exact_if: of ckptlab's own steps, the conditions of the manifest; another system records none.
        model_files: file name to a file that goes along with the model, such as `config.json`.
        left: what the checkpoint has and the result will not have, in words.
    """

    system: str
    path: Path
    tensors: Mapping[str, Mapping[str, TensorSpec]]
    read: Callable[[str, str], Tensor]
    aliases: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, Any] | None = None
    exact_if: Mapping[str, Any] = field(default_factory=dict)
    model_files: Mapping[str, Path] = field(default_factory=dict)
    left: tuple[str, ...] = ()


def blank(spec: TensorSpec) -> Tensor:
    """Return a tensor to fill, on the CPU, whose memory goes back to the system with it.

    An allocator keeps what it had of the tensors before: eight times the largest one was seen.
    """
    if spec.num_bytes == 0:
        return torch.empty(spec.shape, dtype=DTYPES[spec.dtype])
    memory = mmap.mmap(-1, spec.num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=DTYPES[spec.dtype]).reshape(spec.shape)
