"""What bitwise equality of a resumed run rests on: recorded in the manifest, compared at resume."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

WHAT_CHANGES = {
    "torch": "kernels may differ: losses are not bitwise those of the unbroken run",
    "device": "kernels differ: losses are not bitwise those of the unbroken run, and random numbers are new",
    "num_threads": "sums run in another order: losses are not bitwise those of the unbroken run",
    "deterministic_algorithms": "some kernels are not deterministic: losses may not be bitwise those of the unbroken run",
    "world_size": "same state and same global batches, but reductions run in another order and per-rank random numbers are new",
    "accumulate": "same state and same global batches, but sums run in another order",
    "mesh": "same state and same global batches, but reductions run in another order",
}


def present_conditions(
    *, device: torch.device, world_size: int, mesh: Mapping[str, int], accumulate: int | None, data: str | None
) -> dict[str, Any]:
    """Return the conditions of this process, as they stand in a manifest."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "torch": str(torch.__version__),
        "device": name,
        "num_threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "world_size": world_size,
        "mesh": dict(mesh),
        "accumulate": accumulate,
        "data": data,
    }


def same_ranks(saved: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a rank of now can take over what belonged to the rank of its number."""
    return all(saved.get(name) == now[name] for name in ("world_size", "device"))


def values_lost(inexact: Sequence[str]) -> list[str]:
    """Return a sentence if there are tensors whose values are not those that were saved."""
    if not inexact:
        return []
    what = f"{len(inexact)} tensors were made small as int8, {inexact[0]!r} among them"
    return [f"{what}: their values are near those that were saved, and losses not those of the unbroken run"]


def promises_lost(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each condition that differs: what it was, what it is, what does not hold any more."""
    lost = []
    if "world_size" not in saved:  # a copy that `convert` made
        lost.append("it was copied without what belongs to single ranks: random numbers are new")
        saved = {**saved, "world_size": now["world_size"]}
    differing = [name for name in WHAT_CHANGES if saved.get(name) != now[name]]
    if "world_size" in differing and "mesh" in differing:
        differing.remove("mesh")  # it follows from the other
    return lost + [f"{name} was {saved.get(name)}, is {now[name]}: {WHAT_CHANGES[name]}" for name in differing]


def promises_lost_in_conversion(system: object, given: Collection[str], saved: Collection[str]) -> list[str]:
    """Return in sentences what a step lacks that another system saved, beside the names of `TrainState` given and saved."""
    lost = [f"it was converted from {system}: random numbers are new, and the data begin at the first sample"]
    if missing := sorted(set(given) - set(saved)):
        lost.append(f"it has no {', '.join(missing)}: left as made; a scheduler sets its own learning rate at its next step")
    if unused := sorted(set(saved) - set(given)):
        lost.append(f"not asked for, though it has it: {', '.join(unused)}")
    return lost
