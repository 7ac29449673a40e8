"""PyTorch's distributed checkpoints: the folders of `.metadata` and `.distcp` files that `dcp.save` writes."""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import torch

from ckptlab.format.header import TensorSpec
from ckptlab.interop.dcp_items import leaf_of, read_tensor
from ckptlab.interop.dcp_layout import lay_out, tree_of
from ckptlab.interop.dcp_metadata import Entry, read_metadata
from ckptlab.interop.dcp_state import state_of
from ckptlab.interop.dcp_write import write_checkpoint
from ckptlab.interop.foreign import Foreign

__all__ = ["open_checkpoint", "write_checkpoint"]


def open_checkpoint(path: Path) -> Foreign:
    """Open what `dcp.save` wrote, on any number of ranks: all is described, of tensors only small ones are read.

    Raises:
        LoadError: it is not whole, not understood, or asks for more than data; says what and where.
    """
    entries = read_metadata(path)
    layout = lay_out(tree_of({at: leaf_of(path, at, entry) for at, entry in entries.items()}, path), path)
    optimizer = layout.optimizer
    aliases = _ties(path, layout.model, set(optimizer.group_of)) if optimizer else {}
    sections = {
        "model": {name: entry for name, entry in layout.model.items() if name not in aliases},
        "optim": {name: leaf for name, leaf in optimizer.state.items() if isinstance(leaf, Entry)} if optimizer else {},
    }
    state = state_of(path, layout, optimizer) if optimizer else None
    if state is None and layout.rest:
        layout.left.append(f"{', '.join(layout.rest)}: there is no optimizer, so that the weights alone are taken")
    return Foreign(
        system="PyTorch DCP",
        path=path,
        tensors={section: {name: entry.spec for name, entry in held.items()} for section, held in sections.items()},
        read=lambda section, name: read_tensor(path, sections[section][name]),
        aliases=aliases,
        state=state,
        left=tuple(layout.left),
    )


def _ties(folder: Path, model: Mapping[str, Entry], trained: set[str]) -> dict[str, str]:
    """Find further names of tied parameters: DCP stores each name, the optimizer knows one, and their bytes are the same."""
    by_spec: dict[TensorSpec, list[str]] = {}
    for name in sorted(trained & model.keys()):
        by_spec.setdefault(model[name].spec, []).append(name)
    sums: dict[str, bytes] = {}

    def sum_of(name: str) -> bytes:
        if name not in sums:
            flat = read_tensor(folder, model[name]).reshape(-1).view(torch.uint8)
            sums[name] = blake2b(flat.numpy().data).digest()
        return sums[name]

    untrained = [name for name in model if name not in trained and len(model[name].spec.shape) > 1]
    pairs = ((name, other) for name in untrained for other in by_spec.get(model[name].spec, ()))
    return {name: other for name, other in pairs if sum_of(name) == sum_of(other)}
