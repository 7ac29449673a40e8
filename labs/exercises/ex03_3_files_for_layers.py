"""Which files for these layers

A server that holds some layers of a model needs their tensors and no others. `weight_map` is that of an index, with names like
`model.layers.7.up.weight`; `open_file(name)` opens a file and gives its tensors by name, which costs. Return the tensors of
`layers` by name, and open as few files as possible.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ckptlab.course.exercise import Case

MINUTES = 5
WORLD_SIZES = (1,)
IN_KERNEL = True
HINTS = (
    "First the names, from the index alone; then the files of these names, each once; then open.",
    "`model.layers.1` is also how `model.layers.10.up.weight` begins. `name.split('.')[2]` is the number, or a dot ends it.",
    "`{weight_map[name] for name in wanted}` are the files, each once. Of what a file holds, take only what is wanted.",
)


def load_layers(
    weight_map: dict[str, str], layers: list[int], open_file: Callable[[str], dict[str, list[float]]]
) -> dict[str, list[float]]:
    """Return the tensors of `layers` by name."""
    raise NotImplementedError


def solution(
    weight_map: dict[str, str], layers: list[int], open_file: Callable[[str], dict[str, list[float]]]
) -> dict[str, list[float]]:
    prefixes = tuple(f"model.layers.{layer}." for layer in layers)
    wanted = [name for name in weight_map if name.startswith(prefixes)]
    files = {file: open_file(file) for file in {weight_map[name] for name in wanted}}
    return {name: files[weight_map[name]][name] for name in wanted}


def _read(
    weight_map: dict[str, str], wanted: list[str], open_file: Callable[[str], dict[str, list[float]]]
) -> dict[str, list[float]]:
    """Read the wanted tensors and open each file once."""
    files = {file: open_file(file) for file in sorted({weight_map[name] for name in wanted})}
    return {name: files[weight_map[name]][name] for name in wanted}


def wrong_begins_alike(
    weight_map: dict[str, str], layers: list[int], open_file: Callable[[str], dict[str, list[float]]]
) -> dict[str, list[float]]:
    """`model.layers.1` is also how the names of layers 10 and 11 begin: look at the whole number, up to the next dot."""
    prefixes = tuple(f"model.layers.{layer}" for layer in layers)
    return _read(weight_map, [name for name in weight_map if name.startswith(prefixes)], open_file)


def wrong_one_file_a_layer(
    weight_map: dict[str, str], layers: list[int], open_file: Callable[[str], dict[str, list[float]]]
) -> dict[str, list[float]]:
    """A layer may lie in two files, for files are cut by size: ask the index for every tensor, not once a layer."""
    wanted: list[str] = []
    for layer in layers:
        names = [name for name in weight_map if name.startswith(f"model.layers.{layer}.")]
        wanted += [name for name in names if weight_map[name] == weight_map[names[0]]]
    return _read(weight_map, wanted, open_file)


def wrong_whole_files(
    weight_map: dict[str, str], layers: list[int], open_file: Callable[[str], dict[str, list[float]]]
) -> dict[str, list[float]]:
    """The right files, but all that is in them: also tensors of other layers, for which the server may have no memory."""
    prefixes = tuple(f"model.layers.{layer}." for layer in layers)
    files = {file for name, file in weight_map.items() if name.startswith(prefixes)}
    return {name: values for file in sorted(files) for name, values in open_file(file).items()}


def check(
    answer: Callable[[dict[str, str], list[int], Callable[[str], dict[str, list[float]]]], dict[str, list[float]]],
    rank: int,
    world_size: int,
) -> Iterator[Case]:
    blocks = nn.ModuleList(nn.Linear(2, 1) for _ in range(12))
    held = {
        f"model.layers.{name}": torch.full_like(value, number)
        for number, (name, value) in enumerate(blocks.state_dict().items())
    }
    names = sorted(held, key=lambda name: int(name.split(".")[2]))
    drawn = torch.Generator().manual_seed(33)
    with TemporaryDirectory() as folder:
        weight_map = dict(sorted(_write_files(Path(folder), held, [names[at : at + 5] for at in range(0, 24, 5)]).items()))
        for layers in ([1], [2, 3], sorted(torch.randperm(12, generator=drawn)[:3].tolist())):
            opened: list[str] = []
            found = answer(weight_map, layers, _opener(Path(folder), opened))
            wanted = sorted(f"model.layers.{layer}.{name}" for layer in layers for name, _ in blocks[layer].named_parameters())
            expected = {name: held[name].flatten().tolist() for name in wanted}
            fewest = len({weight_map[name] for name in wanted})
            shown = dict(sorted(found.items())) if isinstance(found, dict) else found
            yield Case(shown, expected, where=f"layers {layers} of 12", cost=len(opened), budget=fewest)


def _write_files(folder: Path, held: Mapping[str, torch.Tensor], groups: list[list[str]]) -> dict[str, str]:
    """Write a file for each group of names; give the weight map."""
    weight_map: dict[str, str] = {}
    for number, group in enumerate(groups, start=1):
        file = f"model-{number:05}-of-{len(groups):05}.safetensors"
        save_file({name: held[name] for name in group}, folder / file)
        weight_map |= dict.fromkeys(group, file)
    return weight_map


def _opener(folder: Path, opened: list[str]) -> Callable[[str], dict[str, list[float]]]:
    """Make an `open_file` that notes what it opens."""

    def open_file(name: str) -> dict[str, list[float]]:
        opened.append(name)
        return {tensor: values.flatten().tolist() for tensor, values in load_file(folder / name).items()}

    return open_file
