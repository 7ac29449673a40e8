"""A copy of what this rank holds, in one reused buffer of host memory: training goes on while the copy is written.

`HostBuffer.copy` gives contents that `save` takes like any others. What a rank holds is told by `describe`; here it is bytes.
For what is on a GPU the buffer is pinned, so that the GPU's own copy engine fills it.
"""

import mmap
import weakref
from collections.abc import Sequence
from contextlib import nullcontext, suppress
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
        must_be_pinned = any(tensor.is_cuda for tensor in tensors)
        taken, wanted = ([(tensor.dtype, tensor.shape) for tensor in those] for those in (self._places, tensors))
        if taken != wanted or (must_be_pinned and not self._memory.is_pinned()):
            with torch.inference_mode(False):  # else only who is in it could write into the buffer
                self._lay_out(tensors, must_be_pinned)
        _copy(self._places, tensors)
        return self._places

    def _lay_out(self, tensors: Sequence[Tensor], must_be_pinned: bool) -> None:
        """Give every tensor its place, contiguous, one after the other; pinned, a GPU writes there by itself."""
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        begins = list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))
        self._places = []  # if there is no memory, nothing has a place
        if begins[-1] > len(self._memory) or (must_be_pinned and not self._memory.is_pinned()):
            self._memory = self._memory[:0].clone()  # the old buffer goes before the new one comes
            self._memory = _host_memory(begins[-1])
            if must_be_pinned:
                _pin(self._memory)
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


def _pin(memory: Tensor) -> None:
    """Lock the pages of the memory until it goes. `pin_memory=True` would round its size up to a power of two."""
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has no types for it
    if failure := int(cudart.cudaHostRegister(memory.data_ptr(), len(memory), 0)):
        raise torch.cuda.CudaError(failure)
    weakref.finalize(memory, cudart.cudaHostUnregister, memory.data_ptr())


def _copy(places: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Copy, and return when all is there: what changes the tensors afterwards, on whichever stream, comes too late.

    A GPU copies on a stream of its own, after what training has given it to do so far.
    """
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    streams = {device: torch.cuda.Stream(device) for device in devices}  # type: ignore[no-untyped-call]
    for device, stream in streams.items():
        stream.wait_stream(torch.cuda.current_stream(device))
    for place, tensor in zip(places, tensors, strict=True):
        with torch.cuda.stream(streams[tensor.device]) if tensor.is_cuda else nullcontext():
            place.copy_(tensor, non_blocking=True)
    for stream in streams.values():
        stream.synchronize()
