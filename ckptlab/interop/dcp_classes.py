"""Stand-ins for the classes that DCP pickles into `.metadata`: they hold whatever the pickle has, and do nothing."""

from typing import Any

import torch

from ckptlab.interop.unpickle import Classes, Enumeration, Fixed

MEMORY_FORMATS = {"TORCH_CONTIGUOUS_FORMAT": 0, "TORCH_CHANNELS_LAST": 1, "TORCH_PRESERVE_FORMAT": 2}


class _StandIn(metaclass=Fixed):
    """Holds what a pickle gives an object: arguments that are not used, and attributes."""

    def __init__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"its {name} is missing")


class SavedTensorMetadata(_StandIn):
    """Of a tensor: `properties`, `size`, `chunks`."""


class SavedValueMetadata(_StandIn):
    """Of a plain value: nothing."""


class _Part(_StandIn): ...


class _Properties(_StandIn):
    dtype: Any

    def __setstate__(self, state: Any) -> None:
        self.dtype = state[0]  # layout, requires_grad, memory format and pinning say nothing that the stored tensors do not


class Index(_StandIn):
    """A key of the places: a name, and of a tensor's chunk the offset."""

    fqn: str
    offset: tuple[int, ...] | None = None

    def __init__(self, fqn: str = "", offset: tuple[int, ...] | None = None) -> None:
        self.fqn, self.offset = fqn, offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and (self.fqn, self.offset) == (other.fqn, other.offset)

    def __hash__(self) -> int:
        return hash((self.fqn, self.offset))


def stand_ins() -> Classes:
    """Return what the pickle gets for each of DCP's classes."""
    metadata, files = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
    shards, paths = "torch.distributed._shard.sharded_tensor.metadata", ("pathlib", "pathlib._local")  # of older releases
    unused = [(metadata, name) for name in ("Metadata", "ChunkStorageMetadata", "StorageMeta")]
    unused += [(files, "_StorageInfo"), (files, "_StoragePrefix")]
    unused += [("torch.serialization", "_get_layout")]
    unused += [(module, name) for module in paths for name in ("PosixPath", "WindowsPath", "PurePosixPath")]
    return {
        **dict.fromkeys(unused, _Part),
        **dict.fromkeys([(metadata, "_MEM_FORMAT_ENCODING"), (shards, "MEM_FORMAT_ENCODING")], Enumeration(MEMORY_FORMATS)),
        (metadata, "TensorStorageMetadata"): SavedTensorMetadata,
        (metadata, "BytesStorageMetadata"): SavedValueMetadata,
        (metadata, "MetadataIndex"): Index,
        (metadata, "TensorProperties"): _Properties,
        (shards, "TensorProperties"): _Properties,
        ("torch", "Size"): torch.Size,
    }
