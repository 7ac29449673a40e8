"""What a save does to the file system: the temporary directory, the contents, the manifest. Nothing is communicated here."""

import secrets
from collections.abc import Mapping
from pathlib import Path

import ckptlab
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.plan import Layout, Tensors, records, write_runs
from ckptlab.checkpoint.tensors import TensorBytes, describe, mesh_of, to_exact
from ckptlab.checkpoint.writer import StepWriter
from ckptlab.errors import StepError
from ckptlab.format import names
from ckptlab.format.checksums import BLOCK_BYTES, FileSums
from ckptlab.format.exact import encode
from ckptlab.format.files import index_json
from ckptlab.format.header import build_header
from ckptlab.format.manifest import FileRecord, Manifest
from ckptlab.steps.housekeeping import set_aside
from ckptlab.steps.steps import read_step
from ckptlab.storage import posix

STEP_FOLDERS = (*names.SECTIONS, "ranks")
RANK_FILE_ALIGNMENT = 8  # as safetensors pads
MAX_MODEL_FILE_BYTES = 64 * 2**20  # a config or a tokenizer, not weights


def make_temporary(run: Path, step: int, layout: Layout) -> Path:
    """Make the directory in which the step is written, with the space of its shared files reserved. Coordinator only.

    A directory that has the step's name and is not a whole step is set aside first.

    Raises:
        StepError: the step is saved already.
    """
    run.mkdir(parents=True, exist_ok=True)
    path = run / names.step_name(step)
    if posix.exists_directory(path):
        if read_step(path).whole:
            raise StepError(f"{path} is saved already; save another step, or move this one away")
        set_aside(path, "bad")
    temporary = run / names.temporary_name(step, secrets.token_hex(4))
    try:
        for folder in (temporary, *(temporary / folder for folder in STEP_FOLDERS)):
            posix.make_directory(folder)
        for files in layout.values():
            for file in files:
                posix.reserve(temporary / file.name, file.file_bytes)
    except OSError:
        posix.remove_tree(temporary)
        raise
    return temporary


def write_shared(writer: StepWriter, tensors: Tensors, layout: Layout, rank: int) -> None:
    """Write this rank's share of every tensor, from the tensor's own memory. Every rank calls it."""
    for section, files in layout.items():
        for file in files:
            for name, begin in file.begins.items():
                local = tensors[section][name]
                data = TensorBytes(local.data)
                for position, start, length in write_runs(begin, local, rank, BLOCK_BYTES):
                    writer.write(file.name, file.file_bytes, position, data.read(start, start + length))


def write_own(writer: StepWriter, contents: Contents, rank: int) -> None:
    """Write what belongs to this rank alone; without such contents it writes nothing. Every rank calls it."""
    if contents.rank_tensors:
        file, data = names.rank_tensors_file(rank), {name: TensorBytes(t) for name, t in contents.rank_tensors.items()}
        specs = {name: describe(name, tensor, 0, 1).spec for name, tensor in contents.rank_tensors.items()}
        header, begins = build_header(specs, RANK_FILE_ALIGNMENT)
        parts: list[bytes | memoryview] = [header, *(data[name].read(0, data[name].num_bytes) for name in begins)]
        writer.write_whole(file, b"".join(parts))
    if contents.rank_state:
        writer.write_whole(names.rank_state_file(rank), encode(to_exact(contents.rank_state)))


def write_common(writer: StepWriter, tensors: Tensors, layout: Layout, contents: Contents) -> None:
    """Write what is known before the first tensor is: headers, indexes, state, files that go along. Coordinator only."""
    for section, files in layout.items():
        for file in files:
            writer.write(file.name, file.file_bytes, 0, file.header)
        if files:
            specs = {name: local.spec for name, local in tensors[section].items()}
            writer.write_whole(names.index_file(section), index_json(list(files), specs))
    for name, path in contents.model_files.items():
        names.check_file_name(f"model/{name}")
        writer.write_whole(f"model/{name}", posix.read_file(path, MAX_MODEL_FILE_BYTES))
    writer.write_whole(names.STATE, encode(to_exact(contents.state)))


def write_manifest(
    temporary: Path,
    step: int,
    tensors: Tensors,
    layout: Layout,
    contents: Contents,
    sums: Mapping[str, FileSums],
    world_size: int,
) -> None:
    """Check that every byte of every block was written once, and write the manifest, durably. Coordinator only.

    Raises:
        FormatError: some bytes of a block were not written, or were written twice.
    """
    manifest = Manifest(
        step=step,
        parent=None,
        block_bytes=BLOCK_BYTES,
        files={name: FileRecord(sums[name].file_bytes, tuple(sums[name].finish())) for name in sorted(sums)},
        tensors=records(tensors, layout),
        aliases=contents.aliases,
        saved_by={"ckptlab": ckptlab.__version__, "world_size": world_size, "mesh": mesh_of(contents.model)},
        exact_if=contents.exact_if,
    )
    posix.write_file(temporary / names.MANIFEST, manifest.to_json())
    for folder in (*(temporary / folder for folder in STEP_FOLDERS), temporary):
        posix.sync_directory(folder)


def commit(temporary: Path, path: Path) -> None:
    """Rename the directory: from here on the step exists, and durably so. Coordinator only."""
    posix.rename(temporary, path)
    posix.sync_directory(path.parent)
