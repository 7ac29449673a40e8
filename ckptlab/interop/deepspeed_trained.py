"""What DeepSpeed's optimizer has of each trained parameter: its weights in full precision, its moments and its step."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ckptlab.errors import LoadError
from ckptlab.format.header import TensorSpec
from ckptlab.interop.deepspeed_classes import CLASSES, Fragment
from ckptlab.interop.deepspeed_files import UNIVERSAL, Files, inside, member
from ckptlab.interop.torch_archive import SavedTensor
from ckptlab.interop.torch_file import Joined, Run, TorchFile, num_elements
from ckptlab.interop.zero import Pieces, Shapes, in_parts, in_runs
from ckptlab.storage import posix

WEIGHTS = "fp32"  # DeepSpeed's own name for them beside exp_avg
STEP = "step"
NEEDED = {WEIGHTS, "exp_avg", "exp_avg_sq"}


@dataclass(frozen=True, slots=True)
class Number:
    """A step as torch's optimizers have it: a float32 of no dims."""

    value: float

    @property
    def spec(self) -> TensorSpec:
        """What it is."""
        return TensorSpec("F32", ())

    def read(self) -> Tensor:
        """Return it as a tensor."""
        return torch.tensor(self.value)


Kept = Mapping[str, Joined | Number]
"""What is kept of one parameter: its `fp32`, `exp_avg`, `exp_avg_sq`, `step`."""


@dataclass(frozen=True, slots=True)
class _Share:
    """What one file has of a group or a parameter: flat tensors by key, and its step."""

    file: TorchFile
    flat: Mapping[str, SavedTensor]
    step: float

    @property
    def length(self) -> int:
        return num_elements(self.flat[WEIGHTS])

    @property
    def kinds(self) -> tuple[float, dict[str, str]]:
        """What has to be the same on all ranks: the step, and which states there are, of which dtypes."""
        return self.step, {key: saved.spec.dtype for key, saved in self.flat.items()}


def trained(files: Files, groups: Sequence[Shapes]) -> dict[str, Kept]:
    """Find where everything of every trained parameter lies; `groups` has their shapes in the order of the files.

    Raises:
        LoadError: a rank lacks a part of it, the parts do not make the parameters, or the ranks are not at the same step.
    """
    find = _from_folders if files.is_universal else _from_ranks
    return {name: kept for group, shapes in enumerate(groups) for name, kept in find(files, group, shapes)}


def _from_ranks(files: Files, group: int, shapes: Shapes) -> Iterator[tuple[str, Kept]]:
    """Find the parts of a group's parameters in what each rank has of it, flat."""
    where = f"{files.folder}, group {group}"
    shares = [_share(file, part, group) for file, part in zip(files.optim, files.parts, strict=True)]
    first = shares[0]
    if other := [share for share in shares if share.kinds != first.kinds]:
        raise LoadError(
            f"{where}: at other steps, or with other states: {first.kinds} in {first.file.path.name}, {other[0].kinds} in "
            f"{other[0].file.path.name}; keep the files of one save"
        )
    pieces = _pieces(files, group, shapes, [share.length for share in shares])
    for name, shape in shapes.items():
        joined = {
            key: Joined(
                TensorSpec(first.flat[key].spec.dtype, shape),
                [Run(shares[p.rank].file, shares[p.rank].flat[key], p.begin, p.length) for p in pieces[name]],
            )
            for key in first.flat
        }
        yield name, {**joined, STEP: Number(first.step)}


def _share(file: TorchFile, part: Mapping[str, Any], group: int) -> _Share:
    """Return what a rank has of a group, after checking that it is all that Adam has."""
    under = "single_partition_of_fp32_groups", "base_optimizer_state"
    if "fp32_flat_groups" in part:  # stage 3
        under = "fp32_flat_groups", "optimizer_state_dict"
    weights, state = member(file, part, under[0], list), part.get(under[1])
    by_group = dict(enumerate(state)) if isinstance(state, list) else member(file, state, "state", Mapping)
    padding = dict(enumerate(member(file, part, "group_paddings", list, of=int, absent=[]))).get(group, 0)
    if group >= len(weights):
        raise LoadError(f"{file.path}: {len(weights)} groups, and the model states tell of more; keep the files of one save")
    kept = {WEIGHTS: weights[group], **member(file, by_group, group, Mapping, absent={})}
    share = _checked(f"{file.path}, group {group}", file, kept)
    lengths = {key: num_elements(saved) - share.length for key, saved in share.flat.items()}
    if any(extra not in (0, padding) for extra in lengths.values()):
        raise LoadError(f"{file.path}, group {group}: beyond the {share.length} elements of the weights, {lengths} of padding")
    return share


def _from_folders(files: Files, group: int, shapes: Shapes) -> Iterator[tuple[str, Kept]]:
    """Find the states of parameters of which each has a folder, with one file for each state."""
    common = files.parts[0]  # under stage 3 the step is in there
    for key in ("optimizer_state_dict", "state", group):
        common = member(files.optim[0], common, key, Mapping, absent={})
    for name, shape in shapes.items():
        folder = inside(files.folder / UNIVERSAL, name)
        opened = {file.removesuffix(".pt"): TorchFile(folder / file, CLASSES) for file in _files_in(folder)}
        kept = {key: file.value.get("param") if isinstance(file.value, dict) else file.value for key, file in opened.items()}
        share = _checked(str(folder), opened.get(STEP, files.optim[0]), {STEP: common.get(STEP), **kept})
        found = {saved.spec.shape for saved in share.flat.values()}
        if not found <= {shape, (math.prod(shape),)}:  # flat under stage 3
            raise LoadError(f"{folder}: of the shapes {sorted(found)}, the model states tell of {shape}")
        joined = {
            key: Joined(TensorSpec(saved.spec.dtype, shape), [Run(opened[key], saved, 0, num_elements(saved))])
            for key, saved in share.flat.items()
        }
        yield name, {**joined, STEP: Number(share.step)}


def _files_in(folder: Path) -> list[str]:
    if not posix.exists_directory(folder):
        raise LoadError(f"{folder} is missing, in which what the optimizer has of a parameter stands; copy it too")
    return [name for name in posix.list_names(folder) if name.endswith(".pt")]


def _checked(where: str, file: TorchFile, kept: Mapping[str, Any]) -> _Share:
    """Take weights and states apart from the step, whose file is given; refuse what is not all of Adam's."""
    if missing := sorted(NEEDED - kept.keys() | ({STEP} if kept.get(STEP) is None else set())):
        raise LoadError(f"{where}: no {', '.join(missing)}; not whole, saved before the first step, or not of Adam")
    if odd := [key for key, value in kept.items() if key != STEP and not isinstance(value, SavedTensor)]:
        raise LoadError(f"{where}: {odd[0]!r} is a {type(kept[odd[0]]).__name__}, expected a tensor: not a state of Adam")
    return _Share(file, {key: value for key, value in kept.items() if key != STEP}, _number(where, file, kept[STEP]))


def _number(where: str, file: TorchFile, step: Any) -> float:
    if isinstance(step, SavedTensor) and num_elements(step) == 1:
        step = file.small(step).item()
    if type(step) not in (int, float) or not 0 <= step < 2**24:
        raise LoadError(f"{where}: the step is {step!r:.99}, expected a number that float32 holds")
    return float(step)


def _pieces(files: Files, group: int, shapes: Shapes, lengths: Sequence[int]) -> Pieces:
    """Lay out a group, and compare that with where each rank says that its parameters lie."""
    try:
        if files.stage == 3:
            return in_parts(shapes, lengths)
        pieces = in_runs(shapes, _gaps(files, group, len(shapes)), lengths)
    except LoadError as error:
        raise LoadError(f"{files.folder}, group {group}: {error}") from None
    for rank, (file, part) in enumerate(zip(files.optim, files.parts, strict=True)):
        told = dict(enumerate(member(file, part, "param_slice_mappings", list, of=Mapping, absent=[])))
        if group in told and _told(file, told[group]) != _own(pieces, rank):
            raise LoadError(
                f"{file.path}, group {group}: says that parameters lie at {_told(file, told[group])}, by the lengths they lie "
                f"at {_own(pieces, rank)}; it is of another save, or of a version that is not known here"
            )
    return pieces


def _gaps(files: Files, group: int, num_params: int) -> list[int]:
    """Return the elements of padding after each parameter of a group."""
    told = dict(enumerate(member(files.optim[0], files.parts[0], "param_alignment_paddings", list, of=list, absent=[])))
    gaps: list[int] = member(files.optim[0], told, group, list, of=int, absent=[0] * num_params)
    if len(gaps) != num_params or min(gaps, default=0) < 0:
        raise LoadError(f"{len(gaps)} paddings {gaps!r:.99} of {num_params} parameters; keep the files of one save")
    return gaps


def _told(file: TorchFile, mapping: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {
        name: (member(file, vars(fragment), "start", int), member(file, vars(fragment), "numel", int))
        for name, fragment in mapping.items()
        if isinstance(fragment, Fragment)
    }


def _own(pieces: Pieces, rank: int) -> dict[str, tuple[int, int]]:
    return {name: (piece.begin, piece.length) for name, some in pieces.items() for piece in some if piece.rank == rank}
