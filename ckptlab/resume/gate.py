"""A gate keeps a bad step from becoming the newest: asked on every rank before a save, and one rank's no is every rank's.

`ask`, `first_refusal` in the order in which they act; `finite` is a gate.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.tensors import describe
from ckptlab.resume.train_state import TrainState
from ckptlab.steps.events import read_events

Gate = Callable[[TrainState, Sequence[Mapping[str, Any]]], str | None]
"""From a state and the run's events so far to why the step must not be saved; None: it may. It changes nothing."""

NAMED = 3  # so many tensors are named in a refusal
COUNTED_AT_ONCE = 1 << 20  # values: what is counted takes memory


class Events(Sequence[Mapping[str, Any]]):
    """The events of a run, which are read when they are first looked at: most gates never do."""

    def __init__(self, run: Path) -> None:
        self._run = run

    @cached_property
    def _read(self) -> list[dict[str, Any]]:
        return read_events(self._run)

    def __len__(self) -> int:
        return len(self._read)

    def __getitem__(self, index: Any) -> Any:
        return self._read[index]


def ask(gate: Gate, state: TrainState, run: Path) -> str | None:
    """Return why the gate of this rank does not let the step pass; None if it does.

    What it raises is a refusal too: the other ranks wait for this one.
    """
    try:
        why: object = gate(state, Events(run))
    except Exception as error:  # every kind: the gate is the caller's
        return f"the gate raised {type(error).__name__}: {error}"
    if why is None or isinstance(why, str):
        return why
    return f"the gate returned {why!r}; a str says why a step must not be saved, None lets it pass"


def first_refusal(told: Sequence[str | None]) -> str | None:
    """Return what the first rank that refuses says, from all ranks' answers; None when all let the step pass."""
    refusals = [f"rank {rank}: {why}" for rank, why in enumerate(told) if why is not None]
    if len(refusals) > 1:
        return f"{refusals[0]} (also refused: {len(refusals) - 1} of the other ranks)"
    return refusals[0] if refusals else None


def finite(state: TrainState, events: Sequence[Mapping[str, Any]] = ()) -> str | None:
    """Refuse a step with a NaN or an infinity in what this rank holds of parameters and optimizer state. A gate.

    Buffers may hold them, as masks do. Every value is read once, for a sum; values are counted where that is not finite.
    """
    tensors = _floating(state.contents())
    found = {name: count for name in _suspects(tensors) if (count := _count_not_finite(tensors[name]))}
    if not found:
        return None
    told = [f"{name} ({count} of {tensors[name].numel()} values here)" for name, count in list(found.items())[:NAMED]]
    return f"not finite: {', '.join(told)}" + (f" and {len(found) - NAMED} more tensors" if len(found) > NAMED else "")


def _floating(contents: Contents) -> dict[str, Tensor]:
    """Return this rank's part of every parameter and of the optimizer's state, as numbers that torch can add up."""
    params = {name: tensor for name, tensor in contents.model.items() if name not in contents.buffers}
    local = {name: describe(name, tensor, 0, 1).data for name, tensor in (*params.items(), *contents.optim.items())}
    real = {name: torch.view_as_real(data) if data.is_complex() else data for name, data in local.items()}
    return {
        name: data if data.element_size() > 1 else data.float()  # torch does not reckon in eight bits
        for name, data in real.items()
        if data.is_floating_point()
    }


def _suspects(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors whose sum is not finite: those with such a value, and of large sums some more.

    It takes no memory, a twentieth of the time of looking at each value, and waits for a device once.
    """
    sums: dict[torch.device, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        sums.setdefault(tensor.device, {})[name] = tensor.sum().float()
    suspects = []
    for on_device in sums.values():
        are_finite = torch.stack(list(on_device.values())).isfinite().tolist()
        suspects += [name for name, is_finite in zip(on_device, are_finite, strict=True) if not is_finite]
    return suspects


def _count_not_finite(tensor: Tensor) -> int:
    flat = tensor.reshape(-1)
    parts = (flat[begin : begin + COUNTED_AT_ONCE] for begin in range(0, len(flat), COUNTED_AT_ONCE))
    return sum(int(part.isfinite().logical_not().sum()) for part in parts)
