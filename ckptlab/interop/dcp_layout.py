"""Which parts of a DCP checkpoint are the model, the optimizer, and the rest. Pure: told by structure, not by names.

A job gives `dcp.save` any nested dict. What torch.distributed.checkpoint.state_dict makes of an optimizer is told by its
`param_groups`, nested or flattened into one level; the model is the dict that has the optimizer's parameters among its names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
    left: list[str] = field(default_factory=list)


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
    at_model = _find_model(tree, at_optimizer, optimizer, where)
    node = _at(tree, at_model)
    model = {str(name): leaf for name, leaf in node.items() if isinstance(leaf, Entry)}
    layout = Layout(model, optimizer, {})
    _collect(tree, (), at_model, at_optimizer, layout)
    return layout


def _find_model(tree: Tree, at_optimizer: KeyPath | None, optimizer: Optimizer | None, where: Path) -> KeyPath:
    trained = set(optimizer.group_of) if optimizer else set()
    found = {
        path: names
        for path, node in _dicts(tree)
        if (names := {str(name) for name, leaf in node.items() if isinstance(leaf, Entry)})
        and names >= trained
        and (at_optimizer is None or path[: len(at_optimizer)] != at_optimizer)
    }
    if len(found) > 1:
        named = [path for path in found if path and path[-1] in MODEL_KEYS]
        chosen = named or [path for path in found if not path]  # a model's own names may stand at the top, beside all else
        found = {path: found[path] for path in chosen} or found
    if len(found) == 1:
        return next(iter(found))
    wanted = f" of the {len(trained)} parameters of its optimizer, such as {min(trained)!r:.99}" if trained else ""
    what = f"there are several models, at {list(found)}" if found else f"there is no model{wanted}"
    raise _not_understood(tree, where, what)


def _collect(node: Tree, path: KeyPath, at_model: KeyPath, at_optimizer: KeyPath | None, layout: Layout) -> None:
    """Gather what is neither model nor optimizer; what stands beside them goes by its own name, whatever holds all three."""
    for key, child in node.items():
        here = (*path, key)
        if here in (at_model, at_optimizer):
            if here == at_model:
                layout.left.extend(f"{key}: {name}" for name, leaf in child.items() if not isinstance(leaf, Entry))
            continue
        if path == at_model and isinstance(child, Entry):
            continue
        if any(at is not None and at[: len(here)] == here for at in (at_model, at_optimizer)):
            _collect(child, here, at_model, at_optimizer, layout)
        elif str(key) in layout.rest:
            layout.left.append(f"{'.'.join(map(str, here))}: another one has its name")
        else:
            layout.rest[str(key)] = child


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
