"""The state of a run, as a step has it, from what a DCP checkpoint holds beside the model's tensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ckptlab.checkpoint.tensor_bytes import to_exact
from ckptlab.errors import CkptlabError, FormatError, LoadError
from ckptlab.format.exact import MAX_TENSOR_BYTES, encode
from ckptlab.format.names import SEPARATOR
from ckptlab.interop.dcp_items import read_tensor
from ckptlab.interop.dcp_metadata import Entry
from ckptlab.interop.dcp_optimizer import Optimizer, Value, as_list


def state_of(folder: Path, rest: Mapping[str, Any], optimizer: Optimizer) -> tuple[dict[str, Any], list[str]]:
    """Return what `state.json` of a step holds, `rest` by its names in it; and what cannot be kept, in words."""
    values = {name: leaf.value for name, leaf in optimizer.state.items() if isinstance(leaf, Value)}
    kept = {name: _kept(folder, node) for name, node in rest.items()}
    stateful = {name: value for name, (value, error) in kept.items() if error is None}
    left = [f"{name}: {error}" for name, (_, error) in kept.items() if error is not None]
    if optimizer.merged:
        left.append("the numbers of param groups: the flattened optimizer tells settings only, equal ones are one group")
    step, words = _step(folder, optimizer, stateful)
    state = {
        "step": step,
        "epoch": 0,
        "position": 0,
        "data": None,
        "optimizer": {"class": None, "groups": optimizer.groups},
        "groups": optimizer.group_of,
        "values": values,
        "stateful": stateful,
    }
    return state, left + words


def _kept(folder: Path, node: Any) -> tuple[Any, CkptlabError | None]:
    """Give a value that exact JSON can hold, or why it cannot."""
    try:
        value = _plain(folder, node)
        encode(to_exact(value))
    except (LoadError, FormatError) as error:
        return None, error
    return value, None


def _plain(folder: Path, node: Any) -> Any:
    if isinstance(node, dict):
        return as_list({key: _plain(folder, child) for key, child in node.items()})
    if isinstance(node, Entry):
        return _small(folder, node)
    if node.unread:
        raise LoadError(node.unread)
    return node.value


def _small(folder: Path, entry: Entry) -> Tensor:
    if entry.spec.num_bytes > MAX_TENSOR_BYTES:
        raise LoadError(f"{entry.name!r:.199} is a tensor of {entry.spec.num_bytes} bytes; a state holds {MAX_TENSOR_BYTES}")
    return read_tensor(folder, entry)


def _step(folder: Path, optimizer: Optimizer, stateful: dict[str, Any]) -> tuple[int, list[str]]:
    """Take how many steps were trained, as the optimizer counts them for its parameters, else as the job counted; and words."""
    counts = [_count(folder, leaf) for name, leaf in optimizer.state.items() if name.startswith(f"step{SEPARATOR}")]
    told = stateful.pop("step", None) if _is_count(stateful.get("step")) else None
    train_state = stateful.get("train_state")
    if told is None and isinstance(train_state, dict) and _is_count(train_state.get("step")):
        told = train_state["step"]
    if not counts and told is None:
        return 0, ["the step: neither the optimizer nor a value `step` tells it; 0 was taken"]
    steps = max(counts) if counts else int(told or 0)
    if counts and told is not None and int(told) != steps:
        return steps, [f"the job's own count of steps, {int(told)}: the optimizer has done {steps}"]
    return steps, []


def _count(folder: Path, leaf: Entry | Value) -> int:
    value = _small(folder, leaf) if isinstance(leaf, Entry) else leaf.value
    if not _is_count(value):
        raise LoadError(f"{folder}: the optimizer's step is {value!r:.99}, expected a whole number")
    return int(value)


def _is_count(value: object) -> bool:
    if isinstance(value, Tensor):
        value = value.item() if value.dim() == 0 and not value.is_complex() else None
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63 and value == int(value)
