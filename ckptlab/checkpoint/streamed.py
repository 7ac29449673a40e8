"""Write tensors that are in no memory yet: one process, one tensor at a time, into the same files as a save.

For what comes out of other checkpoints (`ckptlab.interop`). A save of live tensors is `ckptlab.checkpoint.save`.
"""

from collections.abc import Callable, Mapping

from torch import Tensor, empty

from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.plan import Layout, SavePlan, positions
from ckptlab.checkpoint.step_files import write_common, write_tensor
from ckptlab.checkpoint.tensors import LocalTensor, Part, describe
from ckptlab.checkpoint.writer import StepWriter
from ckptlab.errors import LoadError
from ckptlab.format.boxes import whole
from ckptlab.format.header import TensorSpec

Specs = Mapping[str, Mapping[str, TensorSpec]]
"""Section (`model`, `optim`) to name to what the tensor is."""

ReadTensor = Callable[[str, str], Tensor]
"""Section and name to the whole tensor."""

OnBytes = Callable[[int], object]
"""Told of bytes that were written; must not raise."""


def without_values(specs: Specs) -> dict[str, dict[str, LocalTensor]]:
    """Return tensors of which one process will hold the whole, for `Contents.copies`; they have no memory."""
    return {section: {name: _without_values(named[name]) for name in sorted(named)} for section, named in specs.items()}


def _without_values(spec: TensorSpec) -> LocalTensor:
    return LocalTensor(spec, (Part(whole(spec.shape), (0,) * len(spec.shape)),), (0,), empty(0))


def write_streamed(writer: StepWriter, plan: SavePlan, contents: Contents, read: ReadTensor, on_bytes: OnBytes) -> None:
    """Write all of a step but its manifest; raises what `write_layout` does."""
    write_common(writer, plan, contents)
    write_layout(writer, plan.layout, plan.specs, read, on_bytes)


def write_layout(writer: StepWriter, layout: Layout, specs: Specs, read: ReadTensor, on_bytes: OnBytes) -> None:
    """Write every tensor of files that have their headers already.

    Raises:
        LoadError: a tensor that was read is not what `specs` says.
    """
    for section, name, file, begin in positions(layout):
        local = _described(name, read(section, name), specs[section][name])
        for num_bytes in write_tensor(writer, file, begin, local, 0):
            on_bytes(num_bytes)
        del local  # before the next one is read


def _described(name: str, tensor: Tensor, said: TensorSpec) -> LocalTensor:
    local = describe(name, tensor, 0, 1)
    if local.spec != said:
        raise LoadError(f"{name!r} was said to be {_words(said)}, and {_words(local.spec)} was read; do not use it")
    return local


def _words(spec: TensorSpec) -> str:
    return f"{spec.dtype} {list(spec.shape)}"
