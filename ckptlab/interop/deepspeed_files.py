"""The files of a DeepSpeed checkpoint: which there are, and whether they are all of one save."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptlab.errors import FormatError, LoadError
from ckptlab.interop.deepspeed_classes import CLASSES
from ckptlab.interop.folder import is_plain
from ckptlab.interop.torch_file import TorchFile
from ckptlab.storage import posix, store

UNIVERSAL = "zero"  # the folder of a Universal Checkpoint in which each parameter has one
STATES = re.compile(r".*_states\.pt")
FILE = re.compile(r"(?:(?:bf16_|fp16_)?zero_pp_rank_(\d+)_)?mp_rank_(\d+)_(model|optim)_states\.pt")
LATEST = ("latest", "latest_universal")
MAX_TAG_BYTES = 4096
ONLY = "only checkpoints of data-parallel ranks are read"


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one tag, opened.

    Attributes:
        folder: in which they stand.
        stage: of ZeRO.
        num_ranks: as many as saved them.
        model: the states of the module: one for each rank under stage 3, else one for all.
        optim: the optimizer's: one for each rank; of a Universal Checkpoint one, with what all parameters have in common.
        is_universal: whether each parameter has a folder of its own.
    """

    folder: Path
    stage: int
    num_ranks: int
    model: Sequence[TorchFile]
    optim: Sequence[TorchFile]
    is_universal: bool

    @property
    def parts(self) -> list[Mapping[str, Any]]:
        """What the optimizer said of itself on each rank."""
        return [_part(file, self.is_universal) for file in self.optim]


def open_files(path: Path) -> Files:
    """Open a tag's folder, or the newest tag of the folder above it.

    Raises:
        LoadError: a file is missing or cut short, or the files are not those of one save of data-parallel ranks.
    """
    folder = _tag_folder(path)
    is_universal = posix.exists_directory(folder / UNIVERSAL)
    paths = _paths_by_rank(folder)
    if is_universal:
        paths["optim"] = [folder / UNIVERSAL / "optimizer_state.pt"]
    if absent := [kind for kind in paths if not paths[kind]]:
        raise LoadError(f"{folder}: no {absent[0]} states in it; it is no checkpoint of ZeRO, or not all of it was copied")
    opened = {kind: [_opened(path) for path in some] for kind, some in paths.items()}
    first = opened["model"][0]
    num_ranks, part = member(first, first.value, "dp_world_size", int), _part(opened["optim"][0], is_universal)
    stage = member(first, part, "zero_stage", int, absent=1)  # the one that sums bf16's gradients in float32 does not tell: 1
    files = Files(folder, stage, num_ranks, opened["model"], opened["optim"], is_universal)
    _check_ranks(files)
    return files


def member(file: TorchFile, value: Any, name: str | int, kind: Any, of: Any = object, absent: Any = None) -> Any:
    """Return what a dict in a file has under a name; anything may stand in a pickle.

    Args:
        file: begins the error.
        value: the dict.
        name: a key of it.
        kind: of what has to stand there.
        of: of what is a list or a dict: the kind of what is in it.
        absent: what None, or nothing, stands for.

    Raises:
        LoadError: something else stands there.
    """
    found = value.get(name) if isinstance(value, Mapping) else None
    found = absent if found is None else found
    items = found.values() if isinstance(found, Mapping) else found if isinstance(found, list) else ()
    if odd := [item for item, wanted in [(found, kind), *((item, of) for item in items)] if not isinstance(item, wanted)]:
        where = f"{file.path}: {name!r} {'is' if odd[0] is found else 'holds'} a {type(odd[0]).__name__}"
        raise LoadError(f"{where}; it is damaged, no ZeRO checkpoint, or of a DeepSpeed that is not known here")
    return found


def inside(folder: Path, name: str) -> Path:
    """Return the path of what a file names, which may not lead out of its folder."""
    if not is_plain(name):
        raise LoadError(f"{folder}: {name!r:.99} is no plain name of a file or folder in it; the checkpoint may be hostile")
    return folder / name


def _tag_folder(path: Path) -> Path:
    if not store.is_directory(path):
        raise LoadError(f"{path} is no folder; name the one that was given to save_checkpoint, or a tag's")
    names = posix.list_names(path)
    if UNIVERSAL in names or any(STATES.fullmatch(name) for name in names):
        return path
    for latest in (path / name for name in LATEST if name in names):
        try:
            tag = posix.read_file(latest, MAX_TAG_BYTES).decode().strip()
        except (FormatError, UnicodeDecodeError) as error:
            raise LoadError(f"{latest}: not the name of a tag ({error})") from None
        if posix.exists_directory(folder := inside(path, tag)):
            return folder
        raise LoadError(f"{latest} names {tag!r:.99}, and no such folder is beside it; copy it, or name another tag's folder")
    raise LoadError(f"{path}: neither latest nor states of ranks in it; name the folder given to save_checkpoint, or a tag's")


def _paths_by_rank(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each kind in the order of the ranks, of which none may be missing or stand twice."""
    found: dict[str, dict[int, Path]] = {"model": {}, "optim": {}}
    for path in (folder / name for name in posix.list_names(folder) if STATES.fullmatch(name)):
        if not (match := FILE.fullmatch(path.name)) or int(match[2]):
            raise LoadError(f"{path} is of a part of the model: a pipeline stage, experts, a model-parallel rank; {ONLY}")
        by_rank, rank = found[match[3]], int(match[1] or 0)
        if rank in by_rank:
            raise LoadError(f"{by_rank[rank]} and {path.name} are of the same rank, of two saves; keep one save's files")
        by_rank[rank] = path
    for kind, by_rank in found.items():
        if missing := set(range(max(by_rank, default=0))) - by_rank.keys():
            raise LoadError(f"{folder}: the {kind} states of rank {min(missing)} are missing; copy the checkpoint anew, whole")
    return {kind: [by_rank[rank] for rank in sorted(by_rank)] for kind, by_rank in found.items()}


def _opened(path: Path) -> TorchFile:
    file = TorchFile(path, CLASSES)
    if not isinstance(file.value, Mapping):
        raise LoadError(f"{path}: holds a {type(file.value).__name__}, expected a dict as DeepSpeed saves it")
    return file


def _part(file: TorchFile, is_universal: bool) -> Mapping[str, Any]:
    part: Mapping[str, Any] = file.value if is_universal else member(file, file.value, "optimizer_state_dict", Mapping)
    return part


def _check_ranks(files: Files) -> None:
    """Refuse files that do not all say that as many ranks saved them as there are files."""
    if files.stage not in (1, 2, 3):
        raise LoadError(f"{files.folder}: of ZeRO stage {files.stage}; stages 1, 2 and 3 are read")
    for file in files.model:
        split = member(file, file.value, "checkpoint_parallel_dimensions", Mapping, of=int, absent={})
        parallel = {"mp_world_size": member(file, file.value, "mp_world_size", int, absent=1), **split}
        if set(parallel.values()) != {1}:
            raise LoadError(f"{file.path}: the model is split, {parallel}; {ONLY}")
        _check_told(files, file, file.value.get("dp_world_size"))
    for file, part in zip(files.optim, files.parts, strict=True):
        _check_told(files, file, part.get("partition_count"))
    expected = {"model": files.num_ranks if files.stage == 3 else 1, "optim": 1 if files.is_universal else files.num_ranks}
    for kind, found in (("model", files.model), ("optim", files.optim)):
        if len(found) != expected[kind]:
            raise LoadError(
                f"{files.folder}: {len(found)} files of {kind} states, expected {expected[kind]} of {files.num_ranks} ranks; "
                f"some are missing, or left of another save: keep those of one save"
            )


def _check_told(files: Files, file: TorchFile, told: object) -> None:
    if not told or any(number != files.num_ranks for number in (told if isinstance(told, list) else [told])):
        raise LoadError(
            f"{file.path}: a parameter lies on {told} ranks, {files.model[0].path.name} says that {files.num_ranks} saved it; "
            f"keep the files of one save"
        )
