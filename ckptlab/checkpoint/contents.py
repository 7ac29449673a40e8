"""What one checkpoint holds, as live objects: read by `save`, filled by `load`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ckptlab.checkpoint.tensors import LocalTensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The live tensors and the plain state of one checkpoint.

    A tensor in `model` or `optim` is a DTensor, or a plain tensor of which every rank holds an equal copy.

    Attributes:
        model: name to parameter or buffer. A tied parameter stands here once.
        optim: `<state name>::<fqn>` to a tensor of the optimizer's state.
        aliases: further names of tied parameters, each to its name in `model`.
        state: what is the same on all ranks: step, schedules, param groups. Exact JSON, and small tensors.
        by_name: names in `state` under which stands a dict by the names of tensors, of which a rank may have only its own, as
            the stages of a pipeline do: the dicts of all ranks are united.
        rank_tensors: what belongs to this rank alone, read again only by the same rank of an equally large world.
        rank_state: the same for plain values.
        model_files: file name to a file that is copied into `model/`, such as `config.json`.
        buffers: names in `model` of which ranks may hold different values, as BatchNorm does; each rank then keeps its own.
        exact_if: the conditions under which a resumed run is bitwise the same; recorded in the manifest.
        copies: what this rank held of `model` and `optim` at an earlier moment, by section and name (see `HostBuffer`): then
            this is saved, and of the tensors themselves no value is read any more.
    """

    model: Mapping[str, Tensor]
    optim: Mapping[str, Tensor] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    by_name: frozenset[str] = frozenset()
    rank_tensors: Mapping[str, Tensor] = field(default_factory=dict)
    rank_state: Mapping[str, Any] = field(default_factory=dict)
    model_files: Mapping[str, Path] = field(default_factory=dict)
    buffers: frozenset[str] = frozenset()
    exact_if: Mapping[str, Any] = field(default_factory=dict)
    copies: Mapping[str, Mapping[str, LocalTensor]] | None = None
