"""Who writes and reads which bytes: boxes against torch's own dealing of real DTensors, and the product of cuts in memory."""

import itertools
from collections.abc import Iterator

import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Placement, Replicate, Shard, distribute_tensor

from ckptlab.checkpoint.plan import read_strips, write_strips
from ckptlab.checkpoint.tensor_bytes import TensorBytes
from ckptlab.checkpoint.tensors import LocalTensor, Part, describe
from ckptlab.format.boxes import Box, whole
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.header import TensorSpec
from ckptlab.format.records import Piece
from ckptlab.format.strips import rows
from ckptlab.ranks import World

SHAPES = [(8, 6), (7, 3), (3, 5), (1,), (2, 1, 9), (0, 4), (13,)]


def placements(shape: tuple[int, ...], num_axes: int) -> Iterator[tuple[Placement, ...]]:
    each: list[Placement] = [Replicate(), *map(Shard, range(len(shape)))]
    yield from itertools.product(each, repeat=num_axes)


def places(offset: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(at, at + size) for at, size in zip(offset, shape, strict=True))


def wrong_boxes(mesh_shape: tuple[int, ...]) -> list[str]:
    """Distribute tensors that say where each element stands, and name those whose box is not where the elements are."""
    mesh = init_device_mesh("cpu", mesh_shape)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    wrong = []
    for shape in SHAPES:
        full = torch.arange(torch.Size(shape).numel()).reshape(shape)
        for placed in placements(shape, len(mesh_shape)):
            local = describe("x", distribute_tensor(full, mesh, list(placed)), rank, world_size)
            held = torch.full(local.data.shape, -1)
            for part in local.parts:
                held[places(part.at, part.box.shape)] = full[places(part.box.offset, part.box.shape)]
            holders: list[object] = [None] * world_size
            dist.all_gather_object(holders, local.data.flatten().tolist())
            same = {r for r, elements in enumerate(holders) if elements == holders[rank]}
            if held.tolist() != local.data.tolist() or (local.data.numel() and set(local.replicas) != same):
                wrong.append(f"{shape} {placed}: {local.parts}, replicas {local.replicas}")
    return wrong


def test_a_box_is_where_torch_puts_the_shard_and_its_replicas_are_those_that_hold_the_same() -> None:
    for mesh_shape in [(3,), (2, 3), (2, 2, 2)]:
        with World(torch.Size(mesh_shape).numel()) as world:
            assert world.run(wrong_boxes, mesh_shape) == [[]] * world.num_ranks


@st.composite
def deals(draw: st.DrawFn, shape: tuple[int, ...]) -> list[LocalTensor]:
    """Deal a tensor out to ranks: cut one dim as torch.chunk does, each piece held by as many replicas."""
    dim = draw(st.integers(0, len(shape) - 1))
    num_pieces, num_replicas = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    full = torch.arange(torch.Size(shape).numel(), dtype=torch.int32).reshape(shape)
    dealt, begin = [], 0
    for number, piece in enumerate(full.chunk(num_pieces, dim)):
        offset = tuple(begin if d == dim else 0 for d in range(len(shape)))
        replicas = tuple(range(number * num_replicas, (number + 1) * num_replicas))
        part = Part(Box(offset, tuple(piece.shape)), (0,) * len(shape))
        dealt += [LocalTensor(TensorSpec("I32", shape), (part,), replicas, piece)] * num_replicas
        begin += piece.shape[dim]
    return dealt


@settings(max_examples=150, deadline=None)
@given(data=st.data(), shape=st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple), block_bytes=st.integers(1, 64))
def test_what_all_ranks_write_is_the_tensor_and_what_any_rank_reads_is_its_shard(
    data: st.DataObject, shape: tuple[int, ...], block_bytes: int
) -> None:
    header = 24
    full = torch.arange(torch.Size(shape).numel(), dtype=torch.int32)
    file, written = bytearray(header + full.numel() * 4), bytearray(header + full.numel() * 4)
    for rank, local in enumerate(data.draw(deals(shape), label="writers")):
        own = TensorBytes(local.data)
        for strip in write_strips(header, local, rank, block_bytes):
            for (position, start, length), row in zip(strip.runs(), own.rows(strip), strict=True):
                assert position // block_bytes == strip.begin // block_bytes == (position + length - 1) // block_bytes
                file[position : position + length] = row.tobytes()
                assert row.tobytes() == own.read(start, start + length)
                written[position : position + length] = bytes(b + 1 for b in written[position : position + length])
    assert bytes(file[header:]) == full.numpy().tobytes()
    assert set(written[header:]) == {1}, "a byte was written twice, or not at all"

    piece = Piece("model/x", header, whole(shape))
    for local in data.draw(deals(shape), label="readers"):
        target = torch.zeros(local.data.shape, dtype=torch.int32)
        filled = TensorBytes(target)
        for strip in read_strips(piece, local, ITEM_BYTES[local.spec.dtype]):
            filled.put(strip, rows(file, strip.begin, strip.length, strip.num_runs, strip.step))
        assert torch.equal(target, local.data)
