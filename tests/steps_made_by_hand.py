"""Small valid steps on disk, made with safetensors, zlib and the manifest's dataclasses; no code of ours that saves."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from ckptlab.format.boxes import Box, whole
from ckptlab.format.header import TensorSpec
from ckptlab.format.manifest import Manifest
from ckptlab.format.records import FileRecord, Piece, TensorRecord

Arrays = Mapping[str, np.ndarray]
Held = dict[str, tuple[Box, np.ndarray]]  # what one file holds

BLOCK_BYTES = 128  # so that small files have several blocks
DTYPES = {"float32": "F32", "uint8": "U8", "int64": "I64"}
MODEL: Arrays = {"norm.weight": np.linspace(1, 2, 8, dtype="f4"), "proj.weight": np.arange(96, dtype="f4").reshape(12, 8)}
OPTIM: Arrays = {"exp_avg::proj.weight": np.full((12, 8), 0.5, "f4"), "step::proj.weight": np.array(3, "f4")}
RANK: Arrays = {"rng::torch": np.arange(200, dtype="u1")}
STATE: Mapping[str, object] = {"epoch": 1, "scheduler": {"betas": {"$tuple": [0.9, 0.95]}, "last_epoch": 40}}


def make_step(
    run: Path,
    number: int,
    *,
    model: Arrays = MODEL,
    optim: Arrays = OPTIM,
    rank: Arrays = RANK,
    state: Mapping[str, object] = STATE,
    more_files: Mapping[str, bytes] | None = None,
    aliases: Mapping[str, str] | None = None,
    num_ranks: int = 2,
    cut_dim: int | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Path:
    """Write a step; with `cut_dim` each tensor of two dims lies in halves under pieces/, as files="by_rank" has it."""
    files = {"state.json": json.dumps(state).encode(), **(more_files or {})}
    files |= {f"ranks/rank-{number:05d}.safetensors": save(dict(rank)) for number in range(num_ranks)}
    files |= {f"ranks/rank-{number:05d}.json": b'{"counter": 7}' for number in range(num_ranks)}
    tensors: dict[str, dict[str, TensorRecord]] = {}
    for section, arrays in (("model", model), ("optim", optim)):
        parts = _by_tensor(section, arrays) if cut_dim is None else _by_rank(section, arrays, cut_dim)
        files |= {file: save({name: array for name, (_, array) in held.items()}) for file, held in parts.items()}
        begins = {file: _begins(files[file]) for file in parts}
        tensors[section] = {name: _record(name, array, parts, begins) for name, array in arrays.items()}
    path = run / f"step-{number:08d}"
    for file, data in files.items():
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_bytes(data)
    manifest = Manifest(
        step=number,
        parent=None,
        block_bytes=block_bytes,
        files={file: _record_file(data, block_bytes) for file, data in files.items()},
        tensors=tensors,
        aliases=aliases or {},
        saved_by={"ckptlab": "1.0.0", "world_size": num_ranks},
        exact_if={},
    )
    (path / "manifest.json").write_bytes(manifest.to_json())
    return path


def _record_file(data: bytes, block_bytes: int) -> FileRecord:
    blocks = [data[begin : begin + block_bytes] for begin in range(0, len(data), block_bytes)]
    return FileRecord(len(data), tuple(map(zlib.crc32, blocks)))


def _by_tensor(section: str, arrays: Arrays) -> dict[str, Held]:
    return {f"{section}/{section}-00001-of-00001.safetensors": {name: (whole(a.shape), a) for name, a in arrays.items()}}


def _by_rank(section: str, arrays: Arrays, dim: int) -> dict[str, Held]:
    parts: dict[str, Held] = {f"pieces/{section}-{rank}.safetensors": {} for rank in range(2)}
    for name, array in arrays.items():
        halves = np.split(array, 2, dim) if array.ndim > dim else [array]
        for number, (held, half) in enumerate(zip(parts.values(), halves, strict=False)):
            offset = tuple(number * size if axis == dim else 0 for axis, size in enumerate(half.shape))
            held[name] = Box(offset, half.shape), half.copy(order="C")
    return parts


def _record(name: str, array: np.ndarray, parts: Mapping[str, Held], begins: Mapping[str, Mapping[str, int]]) -> TensorRecord:
    pieces = [Piece(file, begins[file][name], held[name][0]) for file, held in parts.items() if name in held]
    return TensorRecord(TensorSpec(DTYPES[array.dtype.name], array.shape), tuple(pieces))


def _begins(data: bytes) -> dict[str, int]:
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_bytes])
    return {name: 8 + header_bytes + entry["data_offsets"][0] for name, entry in header.items()}
