"""The only file that knows DTensor: which boxes of a tensor a rank holds, and which ranks hold the same.

`describe` works it out from mesh and placements alone; nothing is communicated.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement
from torch.nn import Buffer, Parameter

from ckptlab.checkpoint.tensor_bytes import DTYPE_NAMES
from ckptlab.errors import UsageError
from ckptlab.format.boxes import Box, whole
from ckptlab.format.header import TensorSpec

Placements = tuple[Placement, ...]
PLACEMENTS = ("Replicate", "Shard", "_StridedShard")  # the last has no public name


@dataclass(frozen=True, slots=True)
class Part:
    """A box of a tensor, and where in a rank's local part of the tensor it stands."""

    box: Box
    at: tuple[int, ...]

    @property
    def shift(self) -> tuple[int, ...]:
        """What to add to a place in the tensor to get the place in the local part."""
        return tuple(at - offset for at, offset in zip(self.at, self.box.offset, strict=True))


@dataclass(frozen=True, slots=True)
class LocalTensor:
    """What a rank holds of a tensor.

    Attributes:
        spec: dtype and global shape.
        parts: the boxes that the rank holds: one; none where there are more ranks than rows; several under tensor parallel x
            FSDP2, whose local part is their concatenation.
        replicas: the ranks that hold the same boxes, ascending; this rank is one of them. Empty where its mesh has not all
            ranks: then the ranks have to ask each other.
        data: the local part itself, of any device and stride.
    """

    spec: TensorSpec
    parts: tuple[Part, ...]
    replicas: tuple[int, ...]
    data: Tensor

    @property
    def boxes(self) -> list[list[tuple[int, ...]]]:
        """The boxes as JSON carries them."""
        return [[part.box.offset, part.box.shape] for part in self.parts]


def describe(name: str, tensor: Tensor, rank: int, world_size: int) -> LocalTensor:
    """Return what this rank holds of `tensor`. Every rank calls it for itself; nothing is communicated.

    Raises:
        UsageError: the tensor is of a kind that cannot be saved: a sum still to be taken (`Partial`), a subclass of Tensor, a
            sparse or quantised layout, a dtype that safetensors does not have.
    """
    if type(tensor) not in (Tensor, Parameter, Buffer, DTensor):
        raise UsageError(f"{name!r} is a {type(tensor).__name__}: what it needs to come back is not known here")
    if tensor.dtype not in DTYPE_NAMES or tensor.layout is not torch.strided:
        raise UsageError(f"{name!r} is {tensor.dtype}, {tensor.layout}: the format has no such tensors")
    if tensor.is_meta:
        raise UsageError(f"{name!r} is on the meta device, which has no memory; call model.to_empty(device=...) first")
    if tensor.is_conj() or tensor.is_neg():
        raise UsageError(f"{name!r} is a lazy conjugate or negative view; use .resolve_conj().resolve_neg()")
    if _shares_elements(tensor):
        raise UsageError(f"{name!r} is expanded: elements share memory and could not be loaded; use .contiguous()")
    spec = TensorSpec(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape))
    if not isinstance(tensor, DTensor):
        everything = Part(whole(spec.shape), (0,) * tensor.ndim)
        return LocalTensor(spec, (everything,), _everybody(world_size), tensor.detach())
    for placement in tensor.placements:
        if type(placement).__name__ not in PLACEMENTS:
            raise UsageError(f"{name!r} is placed as {placement}: only {', '.join(PLACEMENTS)} can be saved")
    mesh, coordinate = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    ranks = _ranks_of(mesh)
    if not ranks.ascend:
        raise UsageError(
            f"{name!r} is on a mesh whose ranks do not ascend, {ranks.by_place.tolist()}: "
            f"torch deals shards out by rank there, and not by place; make the mesh in the order of the ranks"
        )
    place = None if coordinate is None else tuple(coordinate)
    with torch.no_grad():
        local, parts = tensor.to_local().detach(), _parts(spec.shape, tensor.placements, mesh.shape, place)
    if not _make_up(parts, local):
        raise UsageError(
            f"{name!r} is placed as {tensor.placements}, by which no rank of this mesh holds {list(local.shape)} here of "
            f"{list(tensor.shape)}; cut it as torch.chunk does (distribute_tensor)"
        )
    return LocalTensor(spec, parts, _replicas(tensor.placements, ranks, place, world_size), local)


@lru_cache(maxsize=1)
def _everybody(world_size: int) -> tuple[int, ...]:
    """Return all ranks: the same tuple for all tensors, because a world may be large."""
    return tuple(range(world_size))


def _make_up(parts: tuple[Part, ...], local: Tensor) -> bool:
    """Whether the parts are in the local part, and all of it."""
    inside = all(at + size <= end for part in parts for at, size, end in zip(part.at, part.box.shape, local.shape, strict=True))
    return inside and sum(part.box.num_elements for part in parts) == local.numel()


def _shares_elements(tensor: Tensor) -> bool:
    """Whether two elements may stand at one place: in the order of their strides, a dim steps over less than the one below."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


@lru_cache(maxsize=1024)  # the layers of a model are alike
def _parts(
    shape: tuple[int, ...], placements: Placements, mesh_shape: tuple[int, ...], coordinate: tuple[int, ...] | None
) -> tuple[Part, ...]:
    """Return the boxes of the local part at a place of the mesh; none where the rank is not on it."""
    if coordinate is None:
        return ()
    spans = [_spans(shape, dim, placements, mesh_shape, coordinate) for dim in range(len(shape))]
    by_dim = [_with_local_begins(dim_spans) for dim_spans in spans]
    return tuple(
        Part(Box(tuple(s[0] for s in chosen), tuple(s[1] for s in chosen)), tuple(s[2] for s in chosen))
        for chosen in itertools.product(*by_dim)
    )


def _spans(
    shape: tuple[int, ...], dim: int, placements: Placements, mesh_shape: tuple[int, ...], coordinate: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Return which places of a dim this rank holds, as (begin, size) in local order.

    Mesh axes deal a dim out one after the other. Those with `_StridedShard` come last: FSDP2 puts them before the axis of
    tensor parallel, which has cut the dim already. Their split factor is how many pieces those later axes have made.
    """
    cuts = {axis: placement for axis, placement in enumerate(placements) if not placement.is_replicate()}
    shards = {a: p for a, p in cuts.items() if p.dim % len(shape) == dim}  # type: ignore[attr-defined]  # both kinds have it
    plain = [axis for axis, placement in shards.items() if not hasattr(placement, "split_factor")]
    spans = [(0, shape[dim])]
    for axis in (*plain, *sorted(shards.keys() - set(plain), reverse=True)):
        made = math.prod(mesh_shape[later] for later in shards if later > axis)
        split = getattr(shards[axis], "split_factor", 1)
        spans = _deal(spans, 1 if split == made else split, mesh_shape[axis], coordinate[axis])
    return spans


def _deal(spans: list[tuple[int, int]], split: int, num_ranks: int, index: int) -> list[tuple[int, int]]:
    """Return what rank `index` gets of the spans: each of `split` equal lengths is cut by `torch.chunk` on its own."""
    length = sum(size for _, size in spans)
    dealt = []
    for begin, end in _chunks(0, length, split):
        own = _chunks(begin, end, num_ranks)
        if index < len(own):
            dealt += _cut(spans, *own[index])
    return dealt


def _chunks(begin: int, end: int, count: int) -> list[tuple[int, int]]:
    """Return the (begin, end) of each piece of `torch.chunk`: equally long but for the last, and fewer where there is less."""
    longest = max(-(-(end - begin) // count), 1)
    return [(at, min(at + longest, end)) for at in range(begin, end, longest)]


def _cut(spans: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """Return the spans between two positions in their concatenation."""
    cut, passed = [], 0
    for at, size in spans:
        first, last = max(begin - passed, 0), min(end - passed, size)
        if first < last:
            cut.append((at + first, last - first))
        passed += size
    return cut


def _with_local_begins(spans: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    begins = itertools.accumulate((size for _, size in spans), initial=0)
    return [(at, size, begin) for (at, size), begin in zip(spans, begins, strict=False)]


@lru_cache(maxsize=64)
def _replicas(
    placements: Placements, ranks: "_MeshRanks", coordinate: tuple[int, ...] | None, world_size: int
) -> tuple[int, ...]:
    if ranks.by_place.size != world_size or coordinate is None:
        return ()
    same = tuple(slice(None) if p.is_replicate() else c for p, c in zip(placements, coordinate, strict=True))
    return tuple(sorted(np.ravel(ranks.by_place[same]).tolist()))


class _MeshRanks:
    """The ranks of a mesh by their places, which torch works out anew, slowly, each time that it is asked.

    It does not hold the mesh: that would keep the threads and connections of its groups, also of destroyed ones.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        self.by_place = mesh.mesh.numpy()
        self.ascend = all(bool((np.diff(self.by_place, axis=axis) > 0).all()) for axis in range(self.by_place.ndim))


_known: WeakKeyDictionary[DeviceMesh, _MeshRanks] = WeakKeyDictionary()


def _ranks_of(mesh: DeviceMesh) -> _MeshRanks:
    ranks = _known.get(mesh)
    if ranks is None:
        ranks = _known[mesh] = _MeshRanks(mesh)
    return ranks


def mesh_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the axes of the first tensor that has a device mesh, name to size; empty if none has one."""
    for tensor in tensors.values():
        if isinstance(tensor, DTensor):
            mesh = tensor.device_mesh
            names = mesh.mesh_dim_names or tuple(f"axis{axis}" for axis in range(mesh.ndim))
            return {name: mesh.size(axis) for axis, name in enumerate(names)}
    return {}
