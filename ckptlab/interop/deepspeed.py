"""Checkpoints of DeepSpeed: ZeRO stages 1, 2 and 3, and Universal Checkpoints; without DeepSpeed, and running nothing in them.

Weights are the float32 ones that the optimizer keeps. What else the module has, frozen parameters and buffers, may stand there
in 16 bits: it is widened, which loses nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ckptlab.checkpoint.step_files import MAX_MODEL_FILE_BYTES
from ckptlab.errors import LoadError
from ckptlab.format.header import TensorSpec
from ckptlab.interop.deepspeed_files import Files, member, open_files
from ckptlab.interop.deepspeed_state import check_known, left, param_groups, state_of
from ckptlab.interop.deepspeed_trained import WEIGHTS, Kept, Number, trained
from ckptlab.interop.foreign import Foreign
from ckptlab.interop.torch_archive import SavedTensor
from ckptlab.interop.torch_file import Joined, Run, TorchFile, num_elements
from ckptlab.interop.zero import Shapes, in_parts
from ckptlab.storage import on_disk, posix

SYSTEM = "DeepSpeed"
SEPARATOR = "::"
WIDENED = {"F16": "F32", "BF16": "F32"}


def open_checkpoint(path: Path) -> Foreign:
    """Open the folder that `save_checkpoint` was given, at its newest tag, or one tag's folder, or a Universal Checkpoint.

    Raises:
        LoadError: it is not whole, its files are not of one save, a pickle names what no checkpoint needs, or the model was
            split in other ways than among data-parallel ranks.
    """
    try:
        return _open(on_disk(path))
    except (
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
    ) as error:  # anything may stand in a pickle
        raise LoadError(
            f"{path}: not laid out as DeepSpeed lays out a checkpoint ({type(error).__name__}: {error!s:.200}); it is damaged, "
            f"or of a version that is not known here"
        ) from error


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


def _open(path: Path) -> Foreign:
    files = open_files(path)
    check_known(files)
    shapes = _trained_shapes(files.model[0])
    kept = trained(files, shapes)
    aliases = dict(member(files.model[0], files.model[0].value, "shared_params", Mapping))
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
        model_files=dict(_settings_beside(path)) if path != files.folder else {},
        left=tuple(left(files)),
    )


def _settings_beside(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the settings that a trainer has put beside its checkpoint's tags, `config.json` among them."""
    for name in posix.list_names(path):
        if name.endswith(".json") and (posix.size_of(path / name) or MAX_MODEL_FILE_BYTES + 1) <= MAX_MODEL_FILE_BYTES:
            yield name, path / name


def _trained_shapes(file: TorchFile) -> list[Shapes]:
    """Return the shapes of the trained parameters of each group; under stage 3, of each part of one that is updated at once."""
    return [_shapes(file, group) for group in member(file, file.value, "param_shapes", list)]


def _shapes(file: TorchFile, group: Mapping[str, Sequence[int]]) -> Shapes:
    shapes = {name: tuple(shape) for name, shape in group.items()}
    if odd := [name for name, shape in shapes.items() if not all(type(size) is int and size >= 0 for size in shape)]:
        raise LoadError(f"{file.path}: {odd[0]!r} has the shape {shapes[odd[0]]!r:.99}")
    return shapes


def _optim(kept: Mapping[str, Kept]) -> Iterator[tuple[str, Joined | Number]]:
    for name, states in kept.items():
        yield from ((f"{key}{SEPARATOR}{name}", found) for key, found in states.items() if key != WEIGHTS)


def _frozen_and_buffers(files: Files, others: set[str]) -> Iterator[tuple[str, Joined]]:
    """Yield what the module has beside the trained parameters and further names of tied ones."""
    first = files.model[0]
    module = member(first, first.value, "module", Mapping)
    saved = {name: value for name, value in module.items() if isinstance(value, SavedTensor) and name not in others}
    if files.stage == 3:  # parameters stand there empty; those that are frozen are cut like the trained ones
        yield from _frozen_parts(files)
        saved = {name: value for name, value in saved.items() if name in member(first, first.value, "buffer_names", list)}
    for name, value in saved.items():
        yield name, Joined(_wide(value, value.spec.shape), [Run(first, value, 0, num_elements(value))])


def _frozen_parts(files: Files) -> Iterator[tuple[str, Joined]]:
    shapes = _shapes(files.model[0], files.model[0].value.get("frozen_param_shapes") or {})
    fragments = [file.value.get("frozen_param_fragments") or {} for file in files.model]
    for name, shape in shapes.items():
        parts = [fragment[name] for fragment in fragments]
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
        numbers = {part: number for number, group in enumerate(groups) for part in group["params"]}
    return {name: numbers[part] for part, named in enumerate(shapes) for name in named}
