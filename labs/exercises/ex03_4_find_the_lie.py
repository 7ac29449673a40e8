"""Find the lie

`folder` holds safetensors files and a `model.safetensors.index.json` that may lie. Return the names, sorted, of all tensors
about which it does: listed in a file that does not have them, in a file that is not there, or in no plain file of the folder
(`../elsewhere`); and tensors that a file of the folder has and the index does not list.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ckptlab.course.exercise import Case

MINUTES = 6
WORLD_SIZES = (1,)
IN_KERNEL = True
HINTS = (
    "Look at the files first, without the index: which tensors does each really have? `safe_open(path, 'np')` has `keys()`.",
    "Then go through the names of both, those of the index and those of the files, and compare name by name.",
    "Never open a path that the index gives. Ask the folder: `sorted(Path(folder).glob('*.safetensors'))`, and compare names.",
)


def find_lies(folder: str) -> list[str]:
    """Return the sorted names of the tensors about which the index of `folder` lies."""
    raise NotImplementedError


def solution(folder: str) -> list[str]:
    weight_map = json.loads((Path(folder) / "model.safetensors.index.json").read_bytes())["weight_map"]
    truth: dict[str, str] = {}
    for path in Path(folder).glob("*.safetensors"):
        with safe_open(path, "np") as file:
            truth |= dict.fromkeys(file.keys(), path.name)
    return sorted(name for name in truth.keys() | weight_map.keys() if truth.get(name) != weight_map.get(name))


def _names_in(path: Path) -> list[str]:
    """Give the tensors of a file; none if it is not there."""
    if not path.exists():
        return []
    with safe_open(path, "np") as file:
        return list(file.keys())


def wrong_somewhere_in_the_folder(folder: str) -> list[str]:
    """That a tensor is in some file does not make the index right: a loader opens the file that the index gives."""
    weight_map = json.loads((Path(folder) / "model.safetensors.index.json").read_bytes())["weight_map"]
    held = {name for path in Path(folder).glob("*.safetensors") for name in _names_in(path)}
    return sorted(held ^ weight_map.keys())


def wrong_only_what_is_listed(folder: str) -> list[str]:
    """An index also lies by leaving out: a tensor that it does not list is never loaded. Go through the files as well."""
    weight_map = json.loads((Path(folder) / "model.safetensors.index.json").read_bytes())["weight_map"]
    held = {path.name: _names_in(path) for path in Path(folder).glob("*.safetensors")}
    return sorted(name for name, file in weight_map.items() if name not in held.get(file, []))


def wrong_follows_the_path(folder: str) -> list[str]:
    """Whoever writes `../` into an index chooses which file you open: take no name that leads out of the folder."""
    weight_map = json.loads((Path(folder) / "model.safetensors.index.json").read_bytes())["weight_map"]
    listed = [name for name, file in weight_map.items() if name not in _names_in(Path(folder) / file)]
    held = {name for path in Path(folder).glob("*.safetensors") for name in _names_in(path)}
    return sorted({*listed, *(held - weight_map.keys())})


def check(answer: Callable[[str], list[str]], rank: int, world_size: int) -> Iterator[Case]:
    with TemporaryDirectory() as parent, contextlib.chdir(parent):
        weight_map = _write_model(Path("model"), torch.Generator().manual_seed(34))
        shutil.copytree("model", "elsewhere")
        first, second = sorted(set(weight_map.values()))
        one, two, three, four = sorted(weight_map)
        other = second if weight_map[one] == first else first
        stories: dict[str, dict[str, str | None]] = {
            "a true index": {},
            "a tensor in another file than listed": {one: other},
            "a file that is not there": {two: "model-00003-of-00003.safetensors"},
            "a file outside the folder": {three: f"../elsewhere/{weight_map[three]}"},
            "a tensor that is not listed": {four: None},
            "a tensor that no file has": {"lm_head.weight": second},
        }
        stories["three lies"] = {**stories["a tensor in another file than listed"], three: None, four: None}
        for story, lies in stories.items():
            listed = {name: file for name, file in {**weight_map, **lies}.items() if file is not None}
            Path("model/model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": listed}))
            yield Case(answer("model"), sorted(lies), where=story)


def _write_model(folder: Path, drawn: torch.Generator) -> dict[str, str]:
    """Write two files with two tensors each; give the true weight map."""
    folder.mkdir()
    names = [["embed", "norm", "up", "down"][at] for at in torch.randperm(4, generator=drawn).tolist()]
    weight_map: dict[str, str] = {}
    for number, pair in enumerate((names[:2], names[2:]), start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({f"{name}.weight": torch.ones(2) for name in pair}, folder / file)
        weight_map |= {f"{name}.weight": file for name in pair}
    return weight_map
