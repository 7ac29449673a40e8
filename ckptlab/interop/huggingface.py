"""A model folder as Hugging Face has it: `model.safetensors`, or numbered files with an index that says what is where.

Only weights and the small files beside them; safetensors only, because other files run code when they are opened. A name that
is tied to another and stands in no file stays absent: the model's class ties it again.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from ckptlab.checkpoint.step_files import MAX_MODEL_FILE_BYTES, copy_model_files
from ckptlab.checkpoint.streamed import OnBytes, write_layout
from ckptlab.checkpoint.tensor_bytes import TensorBytes
from ckptlab.checkpoint.writer import StepWriter
from ckptlab.errors import FormatError, LoadError, UsageError
from ckptlab.format.checksums import BLOCK_BYTES
from ckptlab.format.files import index_json, lay_out
from ckptlab.format.names import index_file
from ckptlab.format.strips import Strip
from ckptlab.interop.folder import new_folder
from ckptlab.interop.foreign import Foreign, blank
from ckptlab.interop.weight_files import INDEX, SINGLE, Place, find_weights, inside
from ckptlab.storage import on_disk, posix

SYSTEM = "Hugging Face"
MODEL = "model"  # the section, and the folder in which a step has the same files
MAX_FILE_BYTES = 5_000_000_000  # of tensors
ALONG = {".json", ".txt", ".model", ".jinja", ".md"}  # suffixes of files that go along: settings, tokenizer, words
RIGHTS = {"LICENSE", "NOTICE"}
SHOWN_NAMES = 8


def open_folder(path: Path) -> Foreign:
    """Open a model folder; its index is held against the header of every file that it names, and these against their sizes.

    Raises:
        UsageError: there are no such files, or both kinds.
        LoadError: the index does not say what the files hold, or a file is missing, cut short or outside the folder.
    """
    path = on_disk(path)
    places = find_weights(path)
    model_files = files_beside(path)
    return Foreign(
        system=SYSTEM,
        path=path,
        tensors={MODEL: {name: place.entry.spec for name, place in places.items()}},
        read=lambda section, name: _read(path, places if section == MODEL else {}, name),
        model_files=model_files,
        left=_left(path, {INDEX, *model_files, *(place.file for place in places.values())}),
    )


def write_folder(foreign: Foreign, target: Path, on_bytes: OnBytes, max_file_bytes: int = MAX_FILE_BYTES) -> Path:
    """Write the weights of a checkpoint as a new folder, all of it or nothing, and return the folder.

    A tensor at a time is in memory. One file where all fits, else numbered ones and an index.

    Args:
        foreign: what to write; the optimizer's state is not asked for.
        target: the folder to make.
        on_bytes: told of bytes of tensors that were written; must not raise.
        max_file_bytes: of tensors in a file; a larger tensor stands alone.

    Raises:
        FileExistsError: something is at the target.
        UsageError: there are no weights, or no byte may stand in a file.
        LoadError: what the checkpoint holds cannot be read, or is not what it says.
    """
    specs = foreign.tensors.get(MODEL, {})
    if not specs or max_file_bytes < 1:
        raise UsageError(
            f"{len(specs)} tensors of weights in {foreign.path}, {max_file_bytes} bytes a file: at least 1 of each"
        )
    layout = lay_out(MODEL, specs, max_file_bytes, spread=False)
    if is_single := len(layout) == 1:
        layout = [replace(layout[0], name=f"{MODEL}/{SINGLE}")]
    with new_folder(target, inside=MODEL) as temporary, StepWriter(temporary, BLOCK_BYTES) as writer:
        posix.make_directory(temporary / MODEL)
        for file in layout:
            posix.reserve(temporary / file.name, file.file_bytes)
            writer.write(file.name, file.file_bytes, 0, file.header)
        if not is_single:
            writer.write_whole(index_file(MODEL), index_json(layout, specs))
        copy_model_files(writer, foreign.model_files)
        write_layout(writer, {MODEL: layout}, {MODEL: specs}, foreign.read, on_bytes)
        writer.sync()
    return target


def files_beside(folder: Path) -> dict[str, Path]:
    """Return the files of a folder that go along with its weights: settings, a tokenizer, words.

    Raises:
        LoadError: one is a link that leads out of the folder.
    """
    return {name: inside(folder, name) for name in posix.list_names(folder) if _goes_along(folder / name)}


def _read(folder: Path, places: Mapping[str, Place], name: str) -> Tensor:
    if name not in places:
        raise LoadError(f"{folder} has no {name!r}")
    file, entry = places[name].file, places[name].entry
    tensor = blank(entry.spec)
    memory = TensorBytes(tensor).memory(Strip(0, 0, entry.spec.num_bytes))
    assert memory is not None, "it is on the CPU"
    try:
        with posix.open_to_read(inside(folder, file)) as opened:
            posix.read_into(opened, entry.begin, memory)
    except FormatError as error:
        raise LoadError(f"{name!r} cannot be read from {folder / file}: {error}") from error
    return tensor


def _goes_along(path: Path) -> bool:
    """Whether it is a file of settings, a tokenizer or words: no weights, no index of weights, no program, nothing hidden."""
    is_known = path.suffix in ALONG or path.stem in RIGHTS
    is_plain = path.name.isprintable() and not path.name.startswith(".") and not path.name.endswith(".index.json")
    return is_known and is_plain and path.is_file() and path.stat().st_size <= MAX_MODEL_FILE_BYTES


def _left(folder: Path, taken: set[str]) -> tuple[str, ...]:
    """Say which files stay behind; what is hidden belongs to tools."""
    others = [name for name in posix.list_names(folder) if name not in taken and not name.startswith(".")]
    more = f" and {len(others) - SHOWN_NAMES} more" if len(others) > SHOWN_NAMES else ""
    return (
        (f"files that are no weights of this model and no settings: {', '.join(others[:SHOWN_NAMES])}{more}",) if others else ()
    )
