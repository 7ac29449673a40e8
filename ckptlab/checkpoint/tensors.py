"""The only file that knows what a live tensor is made of: its dtype's name, its box, its replicas, its bytes.

`describe` says which part of a tensor this rank holds and who holds the same part; `TensorBytes` is that part as bytes.
The box of a `Shard(dim)` follows `torch.chunk`, mesh axis by mesh axis, as DTensor deals its shards out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard

from ckptlab.errors import UsageError
from ckptlab.format.boxes import Box, whole
from ckptlab.format.exact import ExactTensor
from ckptlab.format.header import TensorSpec

DTYPE_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.int64: "I64",
    torch.uint64: "U64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e8m0fnu: "F8_E8M0",
}
DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass(frozen=True, slots=True)
class LocalTensor:
    """The part of a tensor that this rank holds.

    Attributes:
        spec: dtype and global shape.
        box: where this rank's part lies; it has no elements where there are more ranks than rows.
        replicas: the ranks that hold the same box, ascending; this rank is one of them.
        data: the part itself, of any device and stride.
    """

    spec: TensorSpec
    box: Box
    replicas: tuple[int, ...]
    data: Tensor


def describe(name: str, tensor: Tensor, rank: int, world_size: int) -> LocalTensor:
    """Return the part of `tensor` that this rank holds. Every rank calls it for itself; nothing is communicated.

    Raises:
        UsageError: the tensor is of a kind that cannot be saved: a placement other than `Shard` and `Replicate`, a sparse
            or quantised layout, a dtype that safetensors does not have.
    """
    if tensor.dtype not in DTYPE_NAMES or tensor.layout is not torch.strided:
        raise UsageError(f"rank {rank}: {name!r} is {tensor.dtype}, {tensor.layout}: the format has no such tensors")
    spec = TensorSpec(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape))
    if not isinstance(tensor, DTensor):
        return LocalTensor(spec, whole(spec.shape), tuple(range(world_size)), tensor.detach())
    for placement in tensor.placements:
        if type(placement) not in (Shard, Replicate):
            raise UsageError(f"rank {rank}: {name!r} is placed as {placement}: only Shard and Replicate can be saved")
    with torch.no_grad():
        return LocalTensor(spec, _box(tensor), _replicas(tensor), tensor.to_local().detach())


def _box(tensor: DTensor) -> Box:
    coordinate = tensor.device_mesh.get_coordinate()
    offset, shape = [0] * tensor.ndim, list(tensor.shape)
    for axis, placement in enumerate(tensor.placements):
        if isinstance(placement, Shard) and coordinate is not None:
            dim, num_ranks, index = placement.dim % tensor.ndim, tensor.device_mesh.size(axis), coordinate[axis]
            longest = -(-shape[dim] // num_ranks)
            begin = min(index * longest, shape[dim])
            offset[dim], shape[dim] = offset[dim] + begin, min(longest, shape[dim] - begin)
    return Box(tuple(offset), tuple(shape))


def _replicas(tensor: DTensor) -> tuple[int, ...]:
    mesh, coordinate = tensor.device_mesh.mesh, tensor.device_mesh.get_coordinate()
    assert coordinate is not None
    same = tuple(slice(None) if p.is_replicate() else c for p, c in zip(tensor.placements, coordinate, strict=True))
    return tuple(sorted(mesh[same].flatten().tolist()))


def mesh_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the axes of the first tensor that has a device mesh, name to size; empty if none has one."""
    for tensor in tensors.values():
        if isinstance(tensor, DTensor):
            mesh = tensor.device_mesh
            names = mesh.mesh_dim_names or tuple(f"axis{axis}" for axis in range(mesh.ndim))
            return {name: mesh.size(axis) for axis, name in enumerate(names)}
    return {}


class TensorBytes:
    """The bytes of a tensor in row-major order, to be read and written in parts.

    On the CPU a contiguous tensor's own memory is used, without a copy. A tensor on another device is copied part by part; a
    tensor that is not contiguous is copied once, and `flush` carries what was written back.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._contiguous = tensor if tensor.is_contiguous() else tensor.contiguous()
        self._flat = self._contiguous.reshape(-1).view(torch.uint8)
        self._memory = self._flat.numpy().data if self._flat.device.type == "cpu" else None
        self.num_bytes = self._flat.numel()

    def read(self, begin: int, end: int) -> memoryview:
        """Return the bytes from `begin` to `end`; of a device's memory, a copy."""
        if self._memory is not None:
            return self._memory[begin:end]
        return self._flat[begin:end].cpu().numpy().data

    def write(self, begin: int, data: memoryview) -> None:
        """Put `data` at `begin`."""
        if self._memory is not None:
            self._memory[begin : begin + len(data)] = data
        else:
            self._flat[begin : begin + len(data)].copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))

    def flush(self) -> None:
        """Carry what was written into the tensor, where its memory could not be written directly."""
        if self._contiguous is not self._tensor:
            self._tensor.copy_(self._contiguous)


def to_exact(value: Any) -> Any:
    """Return `value` with every tensor in it as an `ExactTensor` and every kind of dict as a dict, ready to be encoded."""
    if isinstance(value, Tensor):
        data = bytes(TensorBytes(value.detach()).read(0, value.numel() * value.element_size()))
        return ExactTensor(DTYPE_NAMES[value.dtype], tuple(value.shape), data)
    if isinstance(value, dict):
        return {key: to_exact(item) for key, item in value.items()}
    return type(value)(to_exact(item) for item in value) if type(value) in (list, tuple) else value


def from_exact(value: Any) -> Any:
    """Return `value` with every `ExactTensor` in it as a tensor on the CPU."""
    if isinstance(value, ExactTensor):
        tensor = torch.empty(value.shape, dtype=DTYPES[value.dtype])
        TensorBytes(tensor).write(0, memoryview(value.data))
        return tensor
    if isinstance(value, dict):
        return {key: from_exact(item) for key, item in value.items()}
    return type(value)(from_exact(item) for item in value) if type(value) in (list, tuple) else value
