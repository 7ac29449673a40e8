"""A checkpoint as DCP writes it on one rank, tensor by tensor: `dcp.load` takes it on any number of ranks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.optim import AdamW

from ckptlab.checkpoint.tensor_bytes import DTYPES
from ckptlab.errors import LoadError, UsageError
from ckptlab.format.names import SEPARATOR
from ckptlab.interop.folder import new_folder
from ckptlab.interop.foreign import Foreign
from ckptlab.storage import posix

FILE = "__0_0.distcp"  # of rank 0, its first
CHUNK_BYTES = 16 * 2**20  # a rank that loads reads whole chunks: of smaller ones less that it does not want
MODEL, OPTIM, STEP = "model", "optim", "step"


def write_checkpoint(foreign: Foreign, target: Path, on_bytes: Callable[[int], None]) -> None:
    """Write `{"model": ..., "optim": ..., ...}` into a new folder, as `get_state_dict` and `dcp.save` of a job do it.

    Every tied name stands there. The folder appears whole and durable, or not at all.

    Args:
        foreign: what to write; of it one tensor at a time is in memory.
        target: the folder, which must not be there.
        on_bytes: told of bytes of tensors when they are written, of a tied one's once.

    Raises:
        FileExistsError: something is at the target.
        UsageError: names in the state collide.
        LoadError: the source does not hold what it says.
    """
    sources = _Sources(foreign)
    planner = _planner(_state_dict(foreign, sources), target)
    [plan], metadata = planner.create_global_plan([planner.create_local_plan()])
    with new_folder(target) as folder:
        posix.reserve(folder / FILE, 0)
        with posix.open_to_write(folder / FILE) as file, open(file.fd, "wb", closefd=False) as stream:
            results = [_write(stream, item, planner, sources, on_bytes) for item in plan.items]
            stream.flush()
            posix.sync(file)
        _Writer(folder).finish(metadata, [results])


class _Sources:
    """The tensors of the source by their place in the state dict that is written; the last one that was read is kept."""

    def __init__(self, foreign: Foreign) -> None:
        names = {name: name for name in foreign.tensors[MODEL]} | dict(foreign.aliases)
        optim = {name: name.partition(SEPARATOR) for name in foreign.tensors.get(OPTIM, {})}
        self.of: Mapping[tuple[str | int, ...], tuple[str, str]] = {
            **{(MODEL, name): (MODEL, held) for name, held in names.items()},
            **{(OPTIM, "state", fqn, key): (OPTIM, name) for name, (key, _, fqn) in optim.items()},
        }
        self._foreign = foreign
        self._last: tuple[tuple[str, str], Tensor] | None = None

    def read(self, path: tuple[str | int, ...], chunk: ChunkStorageMetadata) -> Tensor:
        """Return a chunk of a tensor."""
        key = self.of[path]
        if self._last is None or self._last[0] != key:
            self._last = None  # before the next one is read
            self._last = key, self._whole(*key)
        _, tensor = self._last
        for dim, (at, size) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
            tensor = tensor.narrow(dim, at, size)
        return _alone(tensor)

    def is_tied(self, path: tuple[str | int, ...]) -> bool:
        """Whether a further name of a tensor stands there."""
        return path[0] == MODEL and path[1] != self.of[path][1]

    def _whole(self, section: str, name: str) -> Tensor:
        tensor, spec = self._foreign.read(section, name).detach().contiguous(), self._foreign.tensors[section][name]
        if (tensor.dtype, tuple(tensor.shape)) != (DTYPES[spec.dtype], spec.shape):
            raise LoadError(
                f"{self._foreign.path}: {section} {name!r} is {tensor.dtype} {list(tensor.shape)}, "
                f"expected {spec.dtype} {list(spec.shape)}"
            )
        return tensor


def _alone(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor with no more memory than its own, not copied: torch.save writes all memory behind one."""
    if not tensor.numel():
        return tensor.clone()
    own = torch.from_numpy(tensor.reshape(-1).view(torch.uint8).numpy())
    return own.view(tensor.dtype).reshape(tensor.shape)


def _state_dict(foreign: Foreign, sources: _Sources) -> dict[str, Any]:
    """Return what a job would give `dcp.save`, with tensors that have no memory where one is to be read."""
    whole: dict[str, Any] = {MODEL: {}}
    if (state := foreign.state) is not None:
        if taken := sorted(state["stateful"].keys() & {MODEL, OPTIM, STEP}):
            raise UsageError(f"{foreign.path}: {taken} stand in its state, and have to be other things in a DCP checkpoint")
        whole = {**state["stateful"], **whole, OPTIM: {"state": {}, "param_groups": _groups(state)}, STEP: state["step"]}
        for name, value in state["values"].items():
            key, _, fqn = name.partition(SEPARATOR)
            whole[OPTIM]["state"].setdefault(fqn, {})[key] = value
    for path, (section, name) in sources.of.items():
        node: dict[str | int, Any] = whole  # type: ignore[assignment]  # its own keys are text
        for part in path[:-1]:
            node = node.setdefault(part, {})
        spec = foreign.tensors[section][name]
        node[path[-1]] = torch.empty(spec.shape, dtype=DTYPES[spec.dtype], device="meta")
    return whole


def _groups(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the param groups with the names of their parameters; of AdamW all its settings, for a load wants each."""
    defaults = AdamW([torch.empty(0)]).defaults if state["optimizer"]["class"] == AdamW.__name__ else {}
    groups = [{**defaults, **group, "params": []} for group in state["optimizer"]["groups"]]
    for name, number in state["groups"].items():
        groups[number]["params"].append(name)
    return groups


def _planner(state_dict: dict[str, Any], target: Path) -> DefaultSavePlanner:
    planner = _ChunkPlanner()
    try:
        planner.set_up_planner(state_dict, is_coordinator=True)
    except ValueError as error:
        raise UsageError(f"{target}: DCP joins nested names with dots, and two become one: {error}") from None
    return planner


class _ChunkPlanner(DefaultSavePlanner):
    """Plans large tensors in chunks of rows, as if several ranks had them."""

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        return replace(plan, items=[chunk for item in plan.items for chunk in _chunks(item)])


def _chunks(item: WriteItem) -> Iterator[WriteItem]:
    data, num_bytes = item.tensor_data, item.tensor_storage_size() or 0
    if data is None or not data.size or num_bytes <= CHUNK_BYTES:
        yield item
        return
    num_rows, *rest = data.size
    rows = max(1, CHUNK_BYTES * num_rows // num_bytes)
    for begin in range(0, num_rows, rows):
        offsets = torch.Size([begin, *[0] * len(rest)])
        chunk = ChunkStorageMetadata(offsets, torch.Size([min(rows, num_rows - begin), *rest]))
        yield WriteItem(MetadataIndex(item.index.fqn, offsets), WriteItemType.SHARD, tensor_data=replace(data, chunk=chunk))


def _write(
    stream: IO[bytes], item: WriteItem, planner: DefaultSavePlanner, sources: _Sources, on_bytes: Callable[[int], None]
) -> WriteResult:
    begin, path = stream.tell(), planner.mappings[item.index.fqn]
    if item.tensor_data is not None and path in sources.of:
        tensor = sources.read(path, item.tensor_data.chunk)
        torch.save(tensor, stream)
        if not sources.is_tied(path):
            on_bytes(tensor.nbytes)
    elif isinstance(data := planner.resolve_data(item), Tensor):
        torch.save(data, stream)
    else:
        stream.write(data.getbuffer())
    length = stream.tell() - begin
    return WriteResult(item.index, length, _StorageInfo(FILE, begin, length))


class _Writer(FileSystemWriter):
    """Writes `.metadata`, and in it nothing of where and when."""

    def storage_meta(self) -> StorageMeta:
        return StorageMeta()
