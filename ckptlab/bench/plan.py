"""`ckptlab bench plan`: how long planning takes, and how long the manifest is, for a very large model on very many ranks.

Nothing is started and no large tensor is made: rank 0's part of the state, cut into rows as FSDP2 does, is described as
`describe` would, and planned by what a save plans with. DCP plans on one rank for all: here for so many ranks
as take no longer than a limit.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner, create_default_local_save_plan
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan as DcpPlan
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from ckptlab.bench.shapes import Shapes, with_moments
from ckptlab.checkpoint.agreement import propose
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.plan import SavePlan, Tensors, records
from ckptlab.checkpoint.tensors import LocalTensor, Part, describe
from ckptlab.format import names
from ckptlab.format.boxes import Box
from ckptlab.format.checksums import BLOCK_BYTES
from ckptlab.format.files import MAX_FILE_BYTES, lay_out
from ckptlab.format.header import TensorSpec
from ckptlab.format.manifest import Manifest
from ckptlab.format.records import FileRecord

RNG_BYTES = 5056  # of torch's generator, in a rank's own file


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One world size.

    Attributes:
        ranks: the world size.
        own_tensors: how many tensors rank 0 has a part of.
        plan_seconds: what rank 0 takes to lay out the step and to say what it means to save.
        manifest_bytes: of the whole manifest.
        per_rank_bytes: what of it stands there because of the number of ranks.
        dcp_seconds: what DCP's coordinator takes to make one plan of all ranks' plans; None where it would take too long.
    """

    ranks: int
    own_tensors: int
    plan_seconds: float
    manifest_bytes: int
    per_rank_bytes: int
    dcp_seconds: float | None


def plan_times(model: Shapes, world_sizes: Sequence[int], limit: float) -> Iterator[Planned]:
    """Plan a model and its optimizer for each world size, ascending, and yield what it took; `limit` is DCP's, in seconds."""
    shapes = with_moments(model)
    without_ranks = _manifest_bytes(_plan(shapes, 1), 0)
    dcp_rate = _dcp_plan_seconds(shapes, 1)  # a rank; the first world size may be too large already
    for world_size in sorted(world_sizes):
        begin = time.perf_counter()
        plan = _plan(shapes, world_size)
        propose(plan, Contents(model={}))
        seconds = time.perf_counter() - begin
        manifest = _manifest_bytes(plan, world_size)
        dcp_seconds = _dcp_plan_seconds(shapes, world_size) if dcp_rate * world_size <= limit else None
        dcp_rate = dcp_rate if dcp_seconds is None else dcp_seconds / world_size
        yield Planned(
            ranks=world_size,
            own_tensors=sum(bool(local.data.numel()) for named in plan.tensors.values() for local in named.values()),
            plan_seconds=round(seconds, 6),
            manifest_bytes=manifest,
            per_rank_bytes=manifest - without_ranks,
            dcp_seconds=None if dcp_seconds is None else round(dcp_seconds, 6),
        )


def _plan(shapes: dict[str, dict[str, tuple[int, ...]]], world_size: int) -> SavePlan:
    tensors: Tensors = {
        section: {name: _described(name, shape, world_size) for name, shape in sorted(named.items())}
        for section, named in shapes.items()
    }
    specs = {section: {name: local.spec for name, local in named.items()} for section, named in tensors.items()}
    return SavePlan(
        step=1,
        tensors=tensors,
        specs=specs,
        aliases={},
        state={},
        max_file_bytes=MAX_FILE_BYTES,
        layout={section: lay_out(section, named, MAX_FILE_BYTES) for section, named in specs.items()},
    )


def _described(name: str, shape: tuple[int, ...], world_size: int) -> LocalTensor:
    """Describe rank 0's part: a scalar is a plain tensor on every rank."""
    if not shape:
        return describe(name, torch.zeros(()), 0, world_size)
    box = _box(shape, 0, world_size)
    return LocalTensor(TensorSpec("F32", shape), (Part(box, (0,) * len(shape)),), (0,), torch.empty(box.shape, device="meta"))


def _box(shape: tuple[int, ...], rank: int, world_size: int) -> Box:
    """Return a rank's rows as `torch.chunk` cuts them; none where there are more ranks than rows."""
    longest = -(-shape[0] // world_size)
    begin, end = (min(number * longest, shape[0]) for number in (rank, rank + 1))
    return Box((begin,) + (0,) * (len(shape) - 1), (end - begin, *shape[1:]))


def _manifest_bytes(plan: SavePlan, num_ranks: int) -> int:
    """Return the length of a manifest with files of so many ranks; sums are zeros, which are as long as others."""
    sizes = {file.name: file.file_bytes for files in plan.layout.values() for file in files}
    for rank in range(num_ranks):
        sizes |= {names.rank_tensors_file(rank): RNG_BYTES, names.rank_state_file(rank): RNG_BYTES}
    manifest = Manifest(
        step=plan.step,
        parent=None,
        block_bytes=BLOCK_BYTES,
        files={name: FileRecord(size, (0,) * -(-size // BLOCK_BYTES)) for name, size in sizes.items()},
        tensors=records(plan),
        aliases={},
        saved_by={},
        exact_if={},
    )
    return len(manifest.to_json())


def _dcp_plan_seconds(shapes: dict[str, dict[str, tuple[int, ...]]], world_size: int) -> float:
    """Return how long DCP plans for all ranks, when the plans of all are there."""
    flat: Shapes = {f"{section}.{name}": shape for section, named in shapes.items() for name, shape in named.items()}
    scalars = create_default_local_save_plan({n: torch.zeros(()) for n, s in flat.items() if not s}, is_coordinator=True).items
    paths = {name: (name,) for name in flat}
    plans = [
        DcpPlan([*scalars, *(_dcp_item(n, s, rank, world_size) for n, s in flat.items() if s)], planner_data=paths)
        for rank in range(world_size)
    ]
    planner = DefaultSavePlanner()
    begin = time.perf_counter()
    planner.create_global_plan(plans)
    return time.perf_counter() - begin


def _dcp_item(name: str, shape: tuple[int, ...], rank: int, world_size: int) -> WriteItem:
    box = _box(shape, rank, world_size)
    offset, size = torch.Size(box.offset), torch.Size(box.shape)
    properties = TensorProperties(dtype=torch.float32)
    data = TensorWriteData(chunk=ChunkStorageMetadata(offset, size), properties=properties, size=torch.Size(shape))
    return WriteItem(index=MetadataIndex(name, offset), type=WriteItemType.SHARD, tensor_data=data)
