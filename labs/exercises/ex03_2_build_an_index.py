"""Build an index

`folder` holds the safetensors files of one model and no index. Return what `model.safetensors.index.json` would hold:
`{"metadata": {"total_size": ...}, "weight_map": {...}}`. `total_size` is the bytes of all tensors; `weight_map` gives for each
tensor the name of its file, as it stands beside the index.
"""

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file

from ckptlab.course.exercise import Case

MINUTES = 6
WORLD_SIZES = (1,)
IN_KERNEL = True
HINTS = (
    "`sorted(Path(folder).glob('*.safetensors'))` are the files. Of each you need the JSON: 8 bytes, then as many as they say.",
    "A tensor's bytes are `end - begin` of its `data_offsets`. The size of the file is more than the sum of these.",
    "`path.name` is the name without the folder. `__metadata__` is no tensor.",
)


def build_index(folder: str) -> dict[str, dict[str, object]]:
    """Return the index of the safetensors files in `folder`."""
    raise NotImplementedError


def solution(folder: str) -> dict[str, dict[str, object]]:
    total = 0
    weight_map: dict[str, object] = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        for name, item in header.items():
            weight_map[name] = path.name
            total += item["data_offsets"][1] - item["data_offsets"][0]
    return {"metadata": {"total_size": total}, "weight_map": weight_map}


def wrong_size_of_the_files(folder: str) -> dict[str, dict[str, object]]:
    """`total_size` is the bytes of the tensors. The files are larger: each begins with its header."""
    total = sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    weight_map: dict[str, object] = {name: path.name for path, header in _headers(folder) for name in header}
    return {"metadata": {"total_size": total}, "weight_map": weight_map}


def wrong_path_of_the_file(folder: str) -> dict[str, dict[str, object]]:
    """A path holds only until the folder is moved or downloaded: write the file's name, as it stands beside the index."""
    weight_map: dict[str, object] = {name: str(path) for path, header in _headers(folder) for name in header}
    return {"metadata": {"total_size": _total(folder)}, "weight_map": weight_map}


def wrong_names_by_file(folder: str) -> dict[str, dict[str, object]]:
    """`weight_map` goes from a tensor's name to its file, because that is what a loader asks: one entry a tensor."""
    weight_map: dict[str, object] = {path.name: list(header) for path, header in _headers(folder)}
    return {"metadata": {"total_size": _total(folder)}, "weight_map": weight_map}


def wrong_metadata_as_a_tensor(folder: str) -> dict[str, dict[str, object]]:
    """`__metadata__` stands in every header and is no tensor: it has no `data_offsets`, and no place in `weight_map`."""
    total = 0
    weight_map: dict[str, object] = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, item in header.items():
            weight_map[name] = path.name
            total += item["data_offsets"][1] - item["data_offsets"][0]
    return {"metadata": {"total_size": total}, "weight_map": weight_map}


def check(answer: Callable[[str], dict[str, dict[str, object]]], rank: int, world_size: int) -> Iterator[Case]:
    drawn = random.Random("3.2")
    for num_files in (1, 3):
        held = {
            f"model-{number:05}-of-{num_files:05}.safetensors": _drawn_tensors(drawn, number)
            for number in range(1, num_files + 1)
        }
        with TemporaryDirectory() as parent, contextlib.chdir(parent):
            Path("model").mkdir()
            for file, tensors in held.items():
                save_file(tensors, Path("model") / file, {"format": "pt"})
            found = answer("model")
        where = f"{num_files} file{'s' * (num_files > 1)}"
        weight_map = {name: file for file, tensors in held.items() for name in tensors}
        yield Case(_part(found, "weight_map"), dict(sorted(weight_map.items())), where=f"{where}, weight_map")
        total = sum(tensor.nbytes for tensors in held.values() for tensor in tensors.values())
        yield Case(_part(found, "metadata"), {"total_size": total}, where=f"{where}, metadata")


def _headers(folder: str) -> Iterator[tuple[Path, dict[str, dict[str, list[int]]]]]:
    for path in sorted(Path(folder).glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        yield path, header


def _total(folder: str) -> int:
    return sum(item["data_offsets"][1] - item["data_offsets"][0] for _, header in _headers(folder) for item in header.values())


def _drawn_tensors(drawn: random.Random, number: int) -> dict[str, torch.Tensor]:
    """Make the tensors of file `number`."""
    names = drawn.sample(("up.weight", "down.weight", "norm.weight", "bias"), 2)
    dtypes = (torch.float32, torch.bfloat16, torch.int64)
    return {f"layers.{number}.{name}": torch.zeros(drawn.randint(2, 9), dtype=drawn.choice(dtypes)) for name in names}


def _part(index: object, name: str) -> object:
    """Give one member of an index, its names sorted; or what was found instead of an index."""
    if not isinstance(index, dict) or name not in index:
        return index
    member = index[name]
    return dict(sorted(member.items())) if isinstance(member, dict) else member
