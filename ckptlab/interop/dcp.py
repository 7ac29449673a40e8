"""PyTorch's distributed checkpoints: the folders of `.metadata` and `.distcp` files that `dcp.save` writes."""

from pathlib import Path

from ckptlab.interop.dcp_items import leaf_of, read_tensor
from ckptlab.interop.dcp_layout import lay_out, tree_of
from ckptlab.interop.dcp_metadata import Entry, read_metadata
from ckptlab.interop.dcp_state import state_of
from ckptlab.interop.dcp_write import write_checkpoint
from ckptlab.interop.foreign import Foreign

__all__ = ["open_checkpoint", "write_checkpoint"]


def open_checkpoint(path: Path) -> Foreign:
    """Open what `dcp.save` wrote, on any number of ranks: all is described; of tensors only settings and counters are read.

    A tied tensor stands there by each of its names and nothing says so: all of them come out.

    Raises:
        LoadError: it is not whole, not understood, or asks for more than data; says what and where.
    """
    entries = read_metadata(path)
    layout = lay_out(tree_of({at: leaf_of(path, at, entry) for at, entry in entries.items()}, path), path)
    optimizer = layout.optimizer
    sections = {
        "model": layout.model,
        "optim": {name: leaf for name, leaf in optimizer.state.items() if isinstance(leaf, Entry)} if optimizer else {},
    }
    state, left = state_of(path, layout.rest, optimizer) if optimizer else (None, [])
    if state is None and layout.rest:
        left = [f"{', '.join(layout.rest)}: there is no optimizer, so that the weights alone are taken"]
    return Foreign(
        system="PyTorch DCP",
        path=path,
        tensors={section: {name: entry.spec for name, entry in held.items()} for section, held in sections.items()},
        read=lambda section, name: read_tensor(path, sections[section][name]),
        state=state,
        left=(*layout.left, *left),
    )
