"""How the tensors of a section (`model`, `optim`) spread over safetensors files; the same on every rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckptlab.format.header import DATA_ALIGNMENT, TensorSpec, build_header, standing_order
from ckptlab.format.names import shard_file
from ckptlab.format.strict_json import dump_json

MAX_FILE_BYTES = 1_000_000_000  # of tensors
# Ranks that write one file wait for each other, so each begins in another one: there should be several, and none tiny.
SPREAD, LEAST_FILE_BYTES = 16, 32_000_000


@dataclass(frozen=True, slots=True)
class FileLayout:
    """A file before it is written: its name in the step, its header, where each tensor begins, its size in bytes."""

    name: str
    header: bytes
    begins: Mapping[str, int]
    file_bytes: int


def lay_out(section: str, tensors: Mapping[str, TensorSpec], max_file_bytes: int, *, spread: bool = True) -> list[FileLayout]:
    """Fill file after file in standing order; a larger tensor stands alone; no tensors, no files.

    A file takes up to a sixteenth of the section, or 32 MB where that is less, and never more than `max_file_bytes`; where one
    process writes alone (`spread=False`), always as much as that.
    """
    share = sum(spec.num_bytes for spec in tensors.values()) // SPREAD
    most = min(max_file_bytes, max(share, LEAST_FILE_BYTES)) if spread else max_file_bytes
    groups: list[dict[str, TensorSpec]] = []
    room = 0
    for name, spec in sorted(tensors.items(), key=standing_order):
        if not groups or spec.num_bytes > room:
            groups.append({})
            room = most
        groups[-1][name] = spec
        room -= spec.num_bytes
    return [_lay_out_file(shard_file(section, number, len(groups)), group) for number, group in enumerate(groups, start=1)]


def index_json(layouts: Sequence[FileLayout], tensors: Mapping[str, TensorSpec]) -> bytes:
    """Write Hugging Face's index: the bytes of all tensors, and the file of each."""
    weight_map = {name: layout.name.rpartition("/")[2] for layout in layouts for name in layout.begins}
    total = sum(spec.num_bytes for spec in tensors.values())
    return dump_json({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})


def _lay_out_file(name: str, tensors: Mapping[str, TensorSpec]) -> FileLayout:
    header, begins = build_header(tensors, DATA_ALIGNMENT)
    return FileLayout(name, header, begins, len(header) + sum(spec.num_bytes for spec in tensors.values()))
