"""Checkpoints of DeepSpeed: ZeRO stages 1, 2 and 3, and Universal Checkpoints; without DeepSpeed, and running nothing in them.

Weights are the float32 ones that the optimizer keeps. What else the module has, frozen parameters and buffers, may stand there
in 16 bits: it is widened, which loses nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ckptlab.errors import LoadError
from ckptlab.format.header import TensorSpec
from ckptlab.format.names import SEPARATOR
from ckptlab.format.strict_json import LIMIT
from ckptlab.interop.deepspeed_files import Files, member, open_files
from ckptlab.interop.deepspeed_state import check_optimizer, left, param_groups, state_of
from ckptlab.interop.deepspeed_trained import WEIGHTS, Kept, Number, trained
from ckptlab.interop.foreign import Foreign
from ckptlab.interop.huggingface import files_beside
from ckptlab.interop.torch_archive import SavedTensor
from ckptlab.interop.torch_file import Joined, Run, TorchFile, num_elements
from ckptlab.interop.zero import Shapes, in_parts
from ckptlab.storage import on_disk

SYSTEM = "DeepSpeed"
WIDENED = {"F16": "F32", "BF16": "F32"}


def open_checkpoint(path: Path) -> Foreign:
    """Open the folder that `save_checkpoint` was given, at its newest tag, or one tag's folder, or a Universal Checkpoint.

    Raises:
        LoadError: it is not whole, its files are not of one save, a pickle names what no checkpoint needs, or the model was
            split in other ways than among data-parallel ranks.
    """
    path = on_disk(path)
    files = open_files(path)
    check_optimizer(files)
    shapes = _trained_shapes(files.model[0])
    kept = trained(files, shapes)
    aliases = dict(member(files.model[0], files.model[0].value, "shared_params", Mapping, of=str))
    others = dict(_frozen_and_buffers(files, kept.keys() | aliases.keys()))
    model = {**{name: states[WEIGHTS] for name, states in kept.items()}, **others}
    tensors = _Tensors(files.folder, {"model": model, "optim": dict(_optim(kept))})
    return Foreign(
        system=SYSTEM,
        path=files.folder,
        tensors=tensors.specs(),
        read=tensors.read,
        aliases={alias: name for alias, name in aliases.items() if name in model},
        state=state_of(files, _group_numbers(files, shapes)),
        model_files=files_beside(path) if path != files.folder else {},
        left=tuple(left(files)),
    )


@dataclass(frozen=True, slots=True)
class _Tensors:
    """Every tensor, by section and name."""

    path: Path
    sections: Mapping[str, Mapping[str, Joined | Number]]

    def specs(self) -> dict[str, dict[str, TensorSpec]]:
        return {section: {name: found.spec for name, found in named.items()} for section, named in self.sections.items()}

    def read(self, section: str, name: str) -> Tensor:
        if name not in self.sections.get(section, {}):
            raise LoadError(f"{self.path}: no tensor {name!r} in {section}")
        return self.sections[section][name].read()


def _trained_shapes(file: TorchFile) -> list[Shapes]:
    """Return the shapes of the trained parameters of each group; under stage 3, of each part of one that is updated at once."""
    return [_shapes(file, group) for group in member(file, file.value, "param_shapes", list, of=Mapping)]


def _shapes(file: TorchFile, group: Mapping[Any, Any]) -> Shapes:
    for name, shape in group.items():
        sizes = shape if isinstance(shape, tuple) else (None,)
        if not isinstance(name, str) or not all(type(size) is int and 0 <= size < LIMIT for size in sizes):
            raise LoadError(f"{file.path}: {name!r:.99} has the shape {shape!r:.99}")
    return {name: tuple(shape) for name, shape in group.items()}


def _optim(kept: Mapping[str, Kept]) -> Iterator[tuple[str, Joined | Number]]:
    for name, states in kept.items():
        yield from ((f"{key}{SEPARATOR}{name}", found) for key, found in states.items() if key != WEIGHTS)


def _frozen_and_buffers(files: Files, others: set[str]) -> Iterator[tuple[str, Joined]]:
    """Yield what the module has beside the trained parameters and further names of tied ones."""
    first = files.model[0]
    module = member(first, first.value, "module", Mapping)
    named = {name: value for name, value in module.items() if isinstance(name, str) and name not in others}
    saved = {name: value for name, value in named.items() if isinstance(value, SavedTensor)}
    if files.stage == 3:  # parameters stand there empty; those that are frozen are cut like the trained ones
        yield from _frozen_parts(files)
        saved = {name: value for name, value in saved.items() if name in member(first, first.value, "buffer_names", list)}
    for name, value in saved.items():
        yield name, Joined(_wide(value, value.spec.shape), [Run(first, value, 0, num_elements(value))])


def _frozen_parts(files: Files) -> Iterator[tuple[str, Joined]]:
    first = files.model[0]
    shapes = _shapes(first, member(first, first.value, "frozen_param_shapes", Mapping, absent={}))
    fragments = [(file, member(file, file.value, "frozen_param_fragments", Mapping, absent={})) for file in files.model]
    for name, shape in shapes.items():
        parts = [member(file, of_rank, name, SavedTensor) for file, of_rank in fragments]
        if len({part.spec.dtype for part in parts}) > 1:
            raise LoadError(f"{files.folder}: the ranks' parts of {name!r} are of several dtypes; keep the files of one save")
        pieces = in_parts({name: shape}, [num_elements(part) for part in parts])[name]
        runs = [Run(files.model[piece.rank], parts[piece.rank], piece.begin, piece.length) for piece in pieces]
        yield name, Joined(_wide(parts[0], shape), runs)


def _wide(saved: SavedTensor, shape: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(WIDENED.get(saved.spec.dtype, saved.spec.dtype), shape)


def _group_numbers(files: Files, shapes: Sequence[Shapes]) -> dict[str, int]:
    """Return the param group of each trained parameter; under stage 3 a param group says which parts of it there are."""
    groups = param_groups(files)
    numbers = {number: number for number in range(len(shapes))}
    if files.stage == 3 and groups is not None:
        own = [member(files.optim[0], group, "params", list, of=int) for group in groups]
        numbers = {part: number for number, parts in enumerate(own) for part in parts}
    if missing := set(range(len(shapes))) - numbers.keys():
        raise LoadError(
            f"{files.optim[0].path}: no param group has part {min(missing)} of the parameters; keep one save's files"
        )
    return {name: numbers[part] for part, named in enumerate(shapes) for name in named}
