"""Which parts of a DCP checkpoint are the model, the optimizer, and the rest. Pure: told by structure, not by names.

A job gives `dcp.save` any nested dict. What torch.distributed.checkpoint.state_dict makes of an optimizer is told by its
`param_groups`, nested or flattened into one level; the model is the dict that has the optimizer's parameters among its names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptlab.errors import LoadError
from ckptlab.interop.dcp_metadata import Entry, KeyPath
from ckptlab.interop.dcp_optimizer import GROUPS, Optimizer, Tree, is_optimizer, take_apart

MODEL_KEYS = ("model", "state_dict", "module")  # which of several it is, where structure leaves the choice
EXPECTED = (
    'expected {"model": model_state_dict, "optim": optimizer_state_dict} as torch.distributed.checkpoint.state_dict.'
    "get_state_dict gives them, under any names, or a model alone"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a checkpoint; `rest` is what is neither model nor optimizer, by its own name, and `left` in words."""

    model: dict[str, Entry]
    optimizer: Optimizer | None
    rest: dict[str, Any]
    left: list[str]


def tree_of(leaves: Mapping[KeyPath, Any], where: Path) -> Tree:
    """Put leaves at their places; a place that is both a leaf and a dict is a `LoadError`."""
    tree: Tree = {}
    for path, leaf in leaves.items():
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
            if not isinstance(node, dict):
                break
        if not isinstance(node, dict) or path[-1] in node:
            raise LoadError(f"{where}: {path} stands inside a tensor or value of the same checkpoint")
        node[path[-1]] = leaf
    return tree


def lay_out(tree: Tree, where: Path) -> Layout:
    """Tell model, optimizer and rest apart.

    Raises:
        LoadError: there are several optimizers or models, or none that is understood; names what stands at the top.
    """
    optimizers = [(path, node) for path, node in _dicts(tree) if is_optimizer(node)]
    if len(optimizers) > 1:
        raise _not_understood(tree, where, f"it has {len(optimizers)} optimizers, at {[path for path, _ in optimizers]}")
    if not optimizers and any(GROUPS in str(key).split(".") for _, node in _dicts(tree) for key in node):
        raise _not_understood(tree, where, f"there are {GROUPS}, but not as torch makes them of an optimizer")
    optimizer = take_apart(optimizers[0][1], where) if optimizers else None
    at_optimizer = optimizers[0][0] if optimizers else None
    found = _models(tree, at_optimizer, optimizer)
    at_model = _choose(found, at_optimizer)
    if at_model is None:
        raise _not_understood(tree, where, _no_one_model(found, optimizer))
    model = {str(name): leaf for name, leaf in _at(tree, at_model).items() if isinstance(leaf, Entry)}
    rest, left = _rest(tree, at_model, at_optimizer, [at for at in found if at != at_model and optimizer])
    return Layout(model, optimizer, rest, left)


def _models(tree: Tree, at_optimizer: KeyPath | None, optimizer: Optimizer | None) -> list[KeyPath]:
    """Find each dict of tensors that can be the model: where there is an optimizer, one with all its parameters."""
    trained = set(optimizer.group_of) if optimizer else set()
    return [
        path
        for path, node in _dicts(tree)
        if (names := {str(name) for name, leaf in node.items() if isinstance(leaf, Entry)})
        and names >= trained
        and (at_optimizer is None or path[: len(at_optimizer)] != at_optimizer)
    ]


def _choose(found: Sequence[KeyPath], at_optimizer: KeyPath | None) -> KeyPath | None:
    """Choose the model, which stands beside its optimizer: averages and teachers have the same names. None: not to be told.

    A model's own names may also stand around its optimizer, beside all else.
    """
    if len(found) > 1:
        level = (at_optimizer or ())[:-1]
        beside = [path for path in found if path and path[:-1] == level]
        named = [path for path in beside if path[-1] in MODEL_KEYS]
        around = [path for path in found if path == level[: len(path)]]
        found = (named + around or beside) if at_optimizer else (named or around)  # one tensor at the top makes it no model
    return found[0] if len(found) == 1 else None


def _no_one_model(found: Sequence[KeyPath], optimizer: Optimizer | None) -> str:
    if found:
        return f"there are several models, at {found}"
    params = sorted(optimizer.group_of) if optimizer else []
    wanted = f" of the {len(params)} parameters of its optimizer, such as {params[0]!r:.99}" if params else ""
    return f"there is no model{wanted}"


def _rest(
    tree: Tree, at_model: KeyPath, at_optimizer: KeyPath | None, more: Sequence[KeyPath]
) -> tuple[dict[str, Any], list[str]]:
    """Gather what is neither model nor optimizer by its own name; and in words what is not taken, further models among it."""
    rest: dict[str, Any] = {}
    left = []
    is_apart = (at_optimizer or ())[: len(at_model)] != at_model  # else the model's names stand beside all else
    for path, node in _beside(tree, (), at_model, at_optimizer):
        if is_apart and path[:-1] == at_model:
            left.append(f"{_dotted(path)}: no tensor of the model")
        elif further := [_dotted(at) for at in more if at[: len(path)] == path]:
            left.append(f"{_dotted(path)}: a further model, at {', '.join(further)}; the one at {_dotted(at_model)} is taken")
        elif str(path[-1]) in rest:
            left.append(f"{_dotted(path)}: another one has its name")
        else:
            rest[str(path[-1])] = node
    return rest, left


def _beside(node: Tree, path: KeyPath, at_model: KeyPath, at_optimizer: KeyPath | None) -> Iterator[tuple[KeyPath, Any]]:
    """Yield what is neither model nor optimizer, whatever holds all three."""
    for key, child in node.items():
        here = (*path, key)
        if here == at_optimizer or (path == at_model and isinstance(child, Entry)):
            continue
        if any(at is not None and at[: len(here)] == here for at in (at_model, at_optimizer)):
            yield from _beside(child, here, at_model, at_optimizer)
        else:
            yield here, child


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path)) or "the top"


def _dicts(tree: Tree, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Tree]]:
    yield path, tree
    for key, child in tree.items():
        if isinstance(child, dict):
            yield from _dicts(child, (*path, key))


def _at(tree: Tree, path: KeyPath) -> Tree:
    for key in path:
        tree = tree[key]
    return tree


def _not_understood(tree: Tree, where: Path, what: str) -> LoadError:
    top = ", ".join(sorted(map(str, tree))[:12])
    more = f" and {len(tree) - 12} more" if len(tree) > 12 else ""
    return LoadError(f"{where}: {what}. At its top stand {top}{more}; {EXPECTED}")
