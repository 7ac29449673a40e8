"""An optimizer as torch.distributed.checkpoint.state_dict describes it, nested or flattened, found and taken apart. Pure."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptlab.checkpoint.tensor_bytes import to_exact
from ckptlab.errors import FormatError, LoadError
from ckptlab.format.exact import encode
from ckptlab.format.names import SEPARATOR

Tree = dict[str | int, Any]
"""The nested dict that was saved; a list is a dict by its indices; a leaf is an `Entry` of a tensor or a `Value`."""

STATE, GROUPS, PARAMS = "state", "param_groups", "params"


@dataclass(frozen=True, slots=True)
class Value:
    """A plain value that was read, or in words why it was not."""

    value: Any = None
    unread: str | None = None


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer's state: tensors and plain values by `<state name>::<fqn>`, and param groups.

    Attributes:
        state: an `Entry` or a `Value` by name.
        groups: each group's settings, without its parameters.
        group_of: parameter to the number of its group.
        merged: whether the groups were told by equal settings, because their own numbers were not saved.
    """

    state: dict[str, Any]
    groups: list[dict[str, Any]]
    group_of: dict[str, int]
    merged: bool


def is_optimizer(node: Tree) -> bool:
    """Whether a dict is what torch makes of an optimizer: told by its param groups."""
    return _is_nested(node) or _is_flat(node)


def _is_nested(node: Tree) -> bool:
    groups = node.get(GROUPS)
    if not isinstance(groups, dict) or not groups or groups.keys() != set(range(len(groups))):
        return False
    return all(isinstance(group, dict) and PARAMS in group for group in groups.values())


def _is_flat(node: Tree) -> bool:
    names = [str(name) for name in node]
    heads = {name.partition(".")[0] for name in names if "." in name}
    return all("." in name for name in names) and GROUPS in heads and heads <= {STATE, GROUPS}


def take_apart(node: Tree, where: Path) -> Optimizer:
    """Sort an optimizer into tensors and settings by the names of parameters; a `LoadError` where they have none."""
    if _is_flat(node):
        return _flat_optimizer(node, where)
    groups: list[dict[str, Any]] = []
    group_of: dict[str, int] = {}
    for number in range(len(node[GROUPS])):
        settings = {str(key): _plain(value, where) for key, value in node[GROUPS][number].items()}
        group_of |= dict.fromkeys(_names(settings.pop(PARAMS), where), number)
        groups.append(settings)
        _exact(settings, where)
    return Optimizer(dict(_nested_state(node.get(STATE, {}), group_of, where)), groups, group_of, merged=False)


def _nested_state(state: Tree, known: Container[str], where: Path) -> Iterator[tuple[str, Any]]:
    for name, values in state.items():
        if _checked_name(name, where) not in known or not isinstance(values, dict):
            raise LoadError(f"{where}: the optimizer has a state of {name!r:.199}, which is no parameter in its {GROUPS}")
        for key, leaf in values.items():
            yield f"{key}{SEPARATOR}{name}", _checked_leaf(leaf, f"{key} of {name}", where)


def _flat_optimizer(node: Tree, where: Path) -> Optimizer:
    """Take apart `state.<fqn>.<key>` and `param_groups.<fqn>.<key>`: parameters of equal settings make up a group."""
    state: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {}
    for name, leaf in node.items():
        head, _, rest = str(name).partition(".")
        fqn, _, key = rest.rpartition(".")
        if head == GROUPS:
            settings.setdefault(fqn, {})[key] = _plain(leaf, where)
        else:
            state[f"{key}{SEPARATOR}{fqn}"] = _checked_leaf(leaf, str(name), where)
    if unknown := [name for name in state if name.partition(SEPARATOR)[2] not in settings]:
        raise LoadError(f"{where}: the optimizer's {unknown[0]!r:.199} is of no parameter in its {GROUPS}; is it nested?")
    exact = {fqn: _exact(own, where) for fqn, own in settings.items()}
    groups = {exact[fqn]: own for fqn, own in settings.items()}
    numbers = {key: number for number, key in enumerate(groups)}
    return Optimizer(state, list(groups.values()), {fqn: numbers[key] for fqn, key in exact.items()}, merged=True)


def _exact(settings: dict[str, Any], where: Path) -> bytes:
    """Return what a step will hold of a group's settings: equal for equal ones."""
    try:
        return encode(to_exact(settings))
    except FormatError as error:
        raise LoadError(f"{where}: a setting of the optimizer: {error}") from None


def _plain(leaf: Any, where: Path) -> Any:
    """Give the value of a setting."""
    if isinstance(leaf, dict):
        return as_list({key: _plain(value, where) for key, value in leaf.items()})
    if not isinstance(leaf, Value) or leaf.unread:
        reason = leaf.unread if isinstance(leaf, Value) else "a large tensor"
        raise LoadError(f"{where}: a setting of the optimizer: {reason}; only plain values and small tensors are read")
    return leaf.value


def as_list(node: dict[Any, Any]) -> Any:
    """Give the list that a dict by indices stands for, or the dict."""
    return [node[key] for key in range(len(node))] if node and set(node) == set(range(len(node))) else node


def _names(params: Any, where: Path) -> list[str]:
    if not isinstance(params, list):
        raise LoadError(f"{where}: the parameters of a param group are {params!r:.99}, expected a list of names")
    return [_checked_name(name, where) for name in params]


def _checked_name(name: Any, where: Path) -> str:
    if not isinstance(name, str):
        raise LoadError(
            f"{where}: the optimizer's parameters are numbers ({name!r:.99}), which say nothing of the model's names: it was "
            f"saved by optimizer.state_dict(). Save it with torch.distributed.checkpoint.state_dict.get_optimizer_state_dict"
        )
    return name


def _checked_leaf(leaf: Any, what: str, where: Path) -> Any:
    if isinstance(leaf, dict) or (isinstance(leaf, Value) and leaf.unread):
        reason = "it is nested" if isinstance(leaf, dict) else leaf.unread
        raise LoadError(f"{where}: the optimizer's {what}: {reason}; only tensors and plain values are read")
    return leaf
