"""Which boxes the ranks of a mesh hold: torch's arithmetic for DTensor, without torch, so that the notebook's kernel can draw.

`tests/test_figures.py` compares it with what DTensor does on real ranks.
"""

import re
from collections.abc import Sequence
from itertools import product

from ckptlab.errors import UsageError

Pair = tuple[tuple[int, ...], tuple[int, ...]]  # global offset, shape
REPLICATE = "Replicate()"


def boxes_by_rank(shape: Sequence[int], mesh: Sequence[int], placements: Sequence[str]) -> list[list[Pair]]:
    """Give, by rank, the one box (global offset, shape) that it holds of a tensor.

    Args:
        shape: the tensor's global shape.
        mesh: the size of each mesh axis; the last axis runs fastest, so rank 1 of (2, 2) stands at (0, 1).
        placements: one a mesh axis, `"Replicate()"` or `"Shard(dim)"`, written as in torch.

    >>> boxes_by_rank((7, 4), (2,), ["Shard(0)"])
    [[((0, 0), (4, 4))], [((4, 0), (3, 4))]]
    """
    if len(mesh) != len(placements) or min(mesh, default=0) < 1:
        raise UsageError(f"mesh {tuple(mesh)} with placements {list(placements)}: expected one placement for each mesh axis")
    dims = [_sharded_dim(placement, len(shape)) for placement in placements]
    return [[_box(shape, mesh, dims, coordinate)] for coordinate in product(*map(range, mesh))]


def _sharded_dim(placement: str, num_dims: int) -> int | None:
    match = re.fullmatch(r"Shard\((\d{1,2})\)", placement)
    if placement == REPLICATE:
        return None
    if match is None or int(match[1]) >= num_dims:
        expected = ", ".join(f"'Shard({dim})'" for dim in range(num_dims))
        raise UsageError(f"placement {placement!r}: expected {expected} or {REPLICATE!r} for a tensor of {num_dims} dims")
    return int(match[1])


def _box(shape: Sequence[int], mesh: Sequence[int], dims: Sequence[int | None], coordinate: Sequence[int]) -> Pair:
    """Cut as `torch.chunk` does, one mesh axis after the other: each cuts what the one before has left."""
    offset, size = [0] * len(shape), list(shape)
    for num_parts, part, dim in zip(mesh, coordinate, dims, strict=True):
        if dim is not None:
            longest = -(-size[dim] // num_parts)
            first = min(part * longest, size[dim])
            offset[dim] += first
            size[dim] = min(longest, size[dim] - first)
    return tuple(offset), tuple(size)
