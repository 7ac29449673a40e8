"""A copy of what this rank holds, in one reused buffer of host memory: training goes on while the copy is written.

`HostBuffer.copy` gives contents that `save` takes like any others. What a rank holds is told by `describe`; here it is bytes.
"""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.plan import describe_all
from ckptlab.checkpoint.tensor_bytes import to_exact
from ckptlab.checkpoint.tensors import describe

ALIGNMENT = 64  # bytes: a cache line, and a multiple of every dtype's size


class HostBuffer:
    """Memory for one copy of a rank's state; it grows when the state does."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._places: list[Tensor] = []

    def copy(self, contents: Contents, rank: int, world_size: int) -> Contents:
        """Return the contents as they are at this moment; the copy before is overwritten. Nothing is communicated.

        The state that is no tensor is copied too; only `model_files` are read when they are written.

        Raises:
            UsageError: a tensor cannot be saved; see `describe`.
        """
        held = describe_all(contents, rank, world_size)
        own = {name: describe(name, tensor, 0, 1).data for name, tensor in contents.rank_tensors.items()}
        live = [local.data for named in held.values() for local in named.values()]
        copies = iter(self._copied([*live, *own.values()]))
        return replace(
            contents,
            aliases=dict(contents.aliases),
            state=to_exact(contents.state),
            rank_state=to_exact(contents.rank_state),
            model_files=dict(contents.model_files),
            exact_if=deepcopy(contents.exact_if),
            copies={
                section: {name: replace(local, data=next(copies)) for name, local in named.items()}
                for section, named in held.items()
            },
            rank_tensors={name: next(copies) for name in own},
        )

    def _copied(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if [(place.dtype, place.shape) for place in self._places] != [(tensor.dtype, tensor.shape) for tensor in tensors]:
            with torch.inference_mode(False):  # else only who is in it could write into the buffer
                self._lay_out(tensors)
        for place, tensor in zip(self._places, tensors, strict=True):
            place.copy_(tensor)
        return self._places

    def _lay_out(self, tensors: Sequence[Tensor]) -> None:
        """Give every tensor its place, contiguous, one after the other."""
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        begins = list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))
        self._places = []  # if there is no memory, nothing has a place
        if begins[-1] > len(self._memory):
            self._memory = self._memory[:0].clone()  # the old buffer goes before the new one comes
            self._memory = _host_memory(begins[-1])
        self._places = [
            self._memory[begin : begin + size].view(tensor.dtype).view(tensor.shape)
            for tensor, begin, size in zip(tensors, begins, sizes, strict=False)
        ]


def _host_memory(num_bytes: int) -> Tensor:
    """Return memory that forked loader workers do not get: else its pages would be copied, one by one, in the next save."""
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for advice in ("MADV_DONTFORK", "MADV_HUGEPAGE"):
        with suppress(AttributeError, OSError):  # only Linux has them, and not every kernel huge pages
            memory.madvise(getattr(mmap, advice))
    return torch.frombuffer(memory, dtype=torch.uint8)
