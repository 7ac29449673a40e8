"""An optimizer's state by the names of the parameters, read and written without running a step.

torch's own helper for this steps a fresh optimizer once to find out what its state looks like, which changes the run. Here the
state is taken as it is: absent state stays absent, and what a checkpoint has is made with `empty_like(param)`, which keeps the
parameter's device, mesh and placements.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ckptlab.checkpoint.tensor_bytes import DTYPES
from ckptlab.errors import ResumeError, UsageError
from ckptlab.format.names import SEPARATOR
from ckptlab.format.records import TensorRecord

NOT_OF_ONE_CLASS = {"params", "decoupled_weight_decay", "initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"}
"""Names in a param group that tell no optimizer: newer torch and schedulers put them there."""

Named = Mapping[Tensor, str]
"""Parameter to its name; parameters are equal only to themselves."""


def tensors_of(optimizer: Optimizer, named: Named) -> dict[str, Tensor]:
    """Return every tensor of the optimizer's state as `<state name>::<fqn>`."""
    return {name: value for name, value in _values(optimizer, named).items() if isinstance(value, Tensor)}


def state_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return what is the same on all ranks: the optimizer's class, and its param groups without their parameters."""
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return {"class": type(optimizer).__name__, "groups": groups}


def groups_of(optimizer: Optimizer, named: Named) -> dict[str, int]:
    """Return the number of the param group of each of this rank's parameters, by name."""
    groups = enumerate(optimizer.param_groups)
    return {_name(param, named, number): number for number, group in groups for param in group["params"]}


def plain_values_of(optimizer: Optimizer, named: Named) -> dict[str, Any]:
    """Return what is no tensor in the optimizer's state, as `<state name>::<fqn>`."""
    return {name: value for name, value in _values(optimizer, named).items() if not isinstance(value, Tensor)}


def without_state(optimizer: Optimizer, named: Named) -> list[str]:
    """Return the parameters that have no state here: never used, on this rank at least."""
    params = (param for group in optimizer.param_groups for param in group["params"])
    return sorted(named[param] for param in params if param not in optimizer.state)


def check_groups(optimizer: Optimizer, named: Named, state: Mapping[str, Any], groups: Mapping[str, int]) -> None:
    """Refuse a state of another optimizer, or in which this rank's parameters stand in other param groups.

    Raises:
        ResumeError: names the optimizer, or the first parameters that differ.
    """
    if state["class"] not in (type(optimizer).__name__, None):  # None: converted, from a system that does not tell
        raise ResumeError(
            f"the step is of the optimizer {state['class']}, this run has {type(optimizer).__name__}; make the same"
        )
    if state["class"] is None:
        _check_settings(optimizer, state["groups"])
    found, saved = len(optimizer.param_groups), len(state["groups"])
    if found != saved:
        raise ResumeError(f"the optimizer has {found} param groups, the step has {saved}; make the same groups")
    own = groups_of(optimizer, named)
    for name in sorted(own.keys() | (groups.keys() & set(named.values()))):  # those of another rank's stage are not asked for
        group, other = (told.get(name, "none") for told in (own, groups))
        if group != other:
            raise ResumeError(f"{name!r} is in param group {group}, in the step in {other}; make the same groups")


def _check_settings(optimizer: Optimizer, groups: Sequence[Mapping[str, Any]]) -> None:
    """Tell another optimizer by the names of its settings, as far as they are known."""
    own = optimizer.defaults.keys() | optimizer.param_groups[0].keys()
    for number, group in enumerate(groups):
        if group and (differing := sorted((own ^ group.keys()) - NOT_OF_ONE_CLASS)):
            raise ResumeError(
                f"param group {number} of the step is not one of {type(optimizer).__name__}, whose settings have other names: "
                f"{', '.join(differing[:5])}; make the optimizer that the step was saved with"
            )


def tensors_like(
    optimizer: Optimizer, named: Named, records: Mapping[str, TensorRecord], groups: Sequence[Mapping[str, Any]]
) -> dict[str, Tensor]:
    """Return a tensor to fill for every record of this optimizer's parameters: its own where it fits, else a new one.

    Nothing is put in place yet. A record of another rank's parameter is not wanted here.
    """
    own = tensors_of(optimizer, named)
    pairs = zip(optimizer.param_groups, groups, strict=True)  # the step's settings will hold, `fused` among them
    params = {named[param]: (param, saved) for group, saved in pairs for param in group["params"]}
    tensors = {}
    for name, record in records.items():
        key, _, fqn = name.partition(SEPARATOR)
        if fqn not in params:
            continue
        shape, dtype, fitting = record.spec.shape, DTYPES[record.spec.dtype], own.get(name)
        fits = fitting is not None and tuple(fitting.shape) == shape and fitting.dtype == dtype
        tensors[name] = fitting if fitting is not None and fits else _empty(key, *params[fqn], shape, dtype)
    return tensors


def put(
    optimizer: Optimizer,
    named: Named,
    tensors: Mapping[str, Tensor],
    groups: Sequence[Mapping[str, Any]],
    values: Mapping[str, Any],
    absent: Collection[str],
) -> None:
    """Make what was loaded the optimizer's own, in place of all that it had; parameters in `absent` get no state."""
    own = {name: param for param, name in named.items()}
    optimizer.state.clear()
    for name, value in {**tensors, **values}.items():
        key, _, fqn = name.partition(SEPARATOR)
        if fqn in own and fqn not in absent:  # values of another rank's parameters stand there too
            optimizer.state[own[fqn]][key] = value
    for group, saved in zip(optimizer.param_groups, groups, strict=True):
        for key, value in saved.items():
            group[key] = _keeping_identity(group.get(key), value)


def _values(optimizer: Optimizer, named: Named) -> dict[str, Any]:
    if unnamed := [key for key in optimizer.state if not isinstance(key, Tensor)]:
        raise UsageError(f"the optimizer has a state under {unnamed[0]!r}, which is no parameter; keep it in a param group")
    return {
        f"{_key(key)}{SEPARATOR}{_name(param, named, number)}": value
        for number, group in enumerate(optimizer.param_groups)
        for param in group["params"]
        if param in optimizer.state
        for key, value in optimizer.state[param].items()
    }


def _key(key: object) -> str:
    if not isinstance(key, str) or SEPARATOR in key:
        raise UsageError(f"the optimizer's state has the key {key!r}; only text without {SEPARATOR!r} can be saved")
    return key


def _name(param: Tensor, named: Named, group: int) -> str:
    if param not in named:
        raise UsageError(
            f"param group {group} has a parameter of shape {list(param.shape)} that the model does not have; "
            f"make the optimizer after the model is sharded or compiled"
        )
    return named[param]


def _empty(key: str, param: Tensor, group: Mapping[str, Any], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if shape == tuple(param.shape) and key != "step":
        return torch.empty_like(param, dtype=dtype, requires_grad=False)
    if shape and key != "step":  # of rows, of columns: as optimizers make them, on the parameter's device and mesh
        return param.detach().new_empty(shape, dtype=dtype)
    on_device = key != "step" or group.get("capturable") or group.get("fused")  # as torch's `load_state_dict` does it
    return torch.empty(shape, dtype=dtype, device=param.device if on_device else "cpu")


def _keeping_identity(old: Any, new: Any) -> Any:
    """A captured graph or a compiled step holds on to a learning rate that is a tensor."""
    return old.copy_(new) if isinstance(old, Tensor) and isinstance(new, Tensor) else new
