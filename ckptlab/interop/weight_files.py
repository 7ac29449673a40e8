"""Hugging Face's files of weights, found and held against their index: what is believed of a folder that somebody made.

Only headers are read here. Nothing that a file names leads out of the folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckptlab.errors import FormatError, LoadError, UsageError
from ckptlab.format.header import HeaderEntry, parse_header
from ckptlab.format.names import index_file
from ckptlab.format.strict_json import as_mapping, as_text, parse_json
from ckptlab.interop.folder import is_plain
from ckptlab.steps.reading import read_head
from ckptlab.storage import posix

SINGLE = "model.safetensors"
INDEX = Path(index_file("model")).name
MAX_INDEX_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Place:
    """Which file of the folder has a tensor, and where in it."""

    file: str
    entry: HeaderEntry


def find_weights(folder: Path) -> dict[str, Place]:
    """Return where every tensor is, by name.

    Raises:
        UsageError: there are no such files, or both kinds.
        LoadError: the index does not say what the files hold, or a file is missing, cut short or outside the folder.
    """
    names = posix.list_names(folder)
    if (SINGLE in names) == (INDEX in names):
        count = "both" if SINGLE in names else "neither"
        raise UsageError(f"{folder} has {count} of {SINGLE} and {INDEX}, expected one of them: by it the weights are found")
    places = _in_file(folder, SINGLE) if SINGLE in names else _indexed(folder)
    if not places:
        raise LoadError(f"{folder} holds no tensors")
    return places


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file of the folder, following the links that the hub's cache has; refuse what is outside.

    Raises:
        LoadError: the name or the link leads out of the folder.
    """
    if not is_plain(name):
        raise LoadError(
            f"{folder / INDEX} names the file {name!a:.99}, expected a plain name: it must not lead out of the folder"
        )
    path = folder / name
    if not path.is_symlink():
        return path
    real, home = path.resolve(), folder.resolve()
    blobs = home.parent.parent / "blobs"  # models--NAME/snapshots/REVISION/config.json -> ../../blobs/SUM
    if real.parent == home or (home.parent.name == "snapshots" and real.parent == blobs):
        return real
    raise LoadError(f"{path} is a link to {real}, which is outside the folder; copy the file itself into it")


def _in_file(folder: Path, name: str) -> dict[str, Place]:
    """Return where the tensors of one file are, by its header, which has to account for every byte of it."""
    path = inside(folder, name)
    if posix.size_of(path) is None:
        raise LoadError(f"{folder / name} is missing, or is no regular file; without it the model is not whole")
    try:
        return {tensor: Place(name, entry) for tensor, entry in parse_header(*read_head(path)).items()}
    except FormatError as error:
        raise LoadError(f"{folder / name}: {error}; it may be cut short: download or write it again") from error


def _indexed(folder: Path) -> dict[str, Place]:
    """Return where every tensor is, after holding the index against the header of every file that it names."""
    files, total_bytes = _index(folder)
    places: dict[str, Place] = {}
    for name in sorted(set(files.values())):
        for tensor, place in _in_file(folder, name).items():
            if files.get(tensor) != name:
                said = f"in {files[tensor]}" if tensor in files else "nowhere"
                raise LoadError(
                    f"{folder / name} holds {tensor!r}, which by {INDEX} is {said}; download or write the folder again"
                )
            places[tensor] = place
    if missing := sorted(files.keys() - places.keys()):
        raise LoadError(f"{folder / files[missing[0]]} does not hold {missing[0]!r}, though {INDEX} says so")
    found = sum(place.entry.spec.num_bytes for place in places.values())
    if total_bytes not in (None, found):
        raise LoadError(f"{folder / INDEX}: total_size is {total_bytes!r:.40}, but its files hold {found} bytes of tensors")
    return places


def _index(folder: Path) -> tuple[Mapping[str, str], object]:
    """Return what the index says: the file of every tensor, and the bytes of all tensors, or None."""
    where = f"{folder / INDEX}"
    try:
        data = posix.read_file(inside(folder, INDEX), MAX_INDEX_BYTES)
        index = as_mapping(parse_json(data, where, MAX_INDEX_BYTES), where)
        weight_map = as_mapping(index.get("weight_map"), f"{where}: weight_map")
        metadata = as_mapping(index.get("metadata", {}), f"{where}: metadata")
        return {tensor: as_text(name, f"{where}: {tensor!r}") for tensor, name in weight_map.items()}, metadata.get(
            "total_size"
        )
    except FormatError as error:
        raise LoadError(str(error)) from error
