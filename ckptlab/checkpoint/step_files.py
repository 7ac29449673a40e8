"""What a save does to the file system: the temporary directory, the contents, the manifest. Nothing is communicated here."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ckptlab
from ckptlab.checkpoint.collectives import Group, attempt_or_warn
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.pieces import piece_records, rank_file
from ckptlab.checkpoint.plan import SavePlan, positions, records, write_strips
from ckptlab.checkpoint.tensor_bytes import TensorBytes, to_exact
from ckptlab.checkpoint.tensors import LocalTensor, describe, mesh_of
from ckptlab.checkpoint.writer import StepWriter, merge_sums
from ckptlab.errors import StepError
from ckptlab.format import names
from ckptlab.format.checksums import BLOCK_BYTES
from ckptlab.format.exact import encode
from ckptlab.format.files import FileLayout, index_json
from ckptlab.format.header import build_header
from ckptlab.format.manifest import Manifest
from ckptlab.format.records import FileRecord
from ckptlab.steps.housekeeping import set_aside
from ckptlab.steps.steps import file_faults, read_step
from ckptlab.storage import posix

RANK_FILE_ALIGNMENT = 8  # as safetensors pads
MAX_MODEL_FILE_BYTES = 64 * 2**20  # a config or a tokenizer, not weights

Written = tuple[dict[str, dict[str, Any]], dict[str, Any]]
"""What a rank tells of what it wrote: the sums of its files, and its pieces as `write` returns them."""


def make_temporary(run: Path, plan: SavePlan) -> Path:
    """Make the directory in which the step is written, with the space of its shared files reserved. Coordinator only.

    A directory that has the step's name and is not a whole step is set aside first.

    Raises:
        StepError: the step is saved already.
    """
    posix.make_directory_durably(run)
    path = run / names.step_name(plan.step)
    if posix.exists_directory(path):
        if read_step(path).whole:
            raise StepError(f"{path} is saved already; resume from it first, save another step, or move this one away")
        set_aside(path, "bad")
    temporary = run / names.temporary_name(plan.step, secrets.token_hex(4))
    try:
        posix.make_directory(temporary)
        for files in plan.layout.values():
            for file in files:
                posix.make_directory((temporary / file.name).parent)
                posix.reserve(temporary / file.name, file.file_bytes)
    except OSError:
        attempt_or_warn(f"{temporary} was not removed", lambda: remove_temporary(temporary))
        raise
    return temporary


def remove_temporary(temporary: Path) -> None:
    """Remove what was written, unless it is gone or was renamed. Coordinator only."""
    if posix.exists_directory(temporary):
        posix.remove_tree(temporary)


def write(writer: StepWriter, plan: SavePlan, contents: Contents, group: Group) -> dict[str, Any]:
    """Write all that is this rank's to write, and return what the manifest is to say of its pieces. Every rank calls it.

    Raises:
        StepError: this rank does not see the directory that the coordinator made.
    """
    if not posix.exists_directory(writer.directory):
        raise StepError(f"{writer.directory} is not there, though rank 0 made it; all ranks must share the run's storage")
    if group.is_coordinator:
        write_common(writer, plan, contents)
    _write_own(writer, plan, contents, group.rank)
    if plan.files == "by_rank":
        return _write_pieces(writer, plan, group.rank)
    _write_shared(writer, plan, group)
    return {}


def _write_shared(writer: StepWriter, plan: SavePlan, group: Group) -> None:
    """Write this rank's share of every tensor, from the tensor's own memory."""
    for section, name, file, begin in positions(plan.layout, group.rank, group.world_size):
        local = plan.tensors[section].get(name)
        if local is None:
            continue  # other ranks hold it
        for _ in write_tensor(writer, file, begin, local, group.rank):
            pass


def write_tensor(writer: StepWriter, file: FileLayout, begin: int, local: LocalTensor, rank: int) -> Iterator[int]:
    """Write a rank's share of a tensor that begins at byte `begin` of the file; yield the bytes of each part."""
    data = TensorBytes(local.data)
    for strip in write_strips(begin, local, rank, BLOCK_BYTES):
        writer.write_strip(file.name, file.file_bytes, strip, data.rows(strip))
        yield strip.length * strip.num_runs


def _write_pieces(writer: StepWriter, plan: SavePlan, rank: int) -> dict[str, Any]:
    """Write this rank's pieces into the one file that it has for all of them; return them by section and name."""
    own = rank_file(plan.tensors, rank)
    if own is None:
        return {}
    file = own.layout
    posix.make_directory((writer.directory / file.name).parent)
    posix.reserve(writer.directory / file.name, file.file_bytes)
    writer.write(file.name, file.file_bytes, 0, file.header)
    for key, begin in file.begins.items():
        data = TensorBytes(own.pieces[key].local.data)
        for strip in own.pieces[key].strips(begin, BLOCK_BYTES):
            writer.write_strip(file.name, file.file_bytes, strip, data.rows(strip))
    return own.to_json()


def _write_own(writer: StepWriter, plan: SavePlan, contents: Contents, rank: int) -> None:
    """Write what belongs to this rank alone; without such contents it writes nothing."""
    held = plan.tensors["model"]
    buffers = {f"{names.BUFFER}{name}": held[name].data for name in plan.kept_apart & held.keys()}
    own = {**contents.rank_tensors, **buffers}
    if own:
        file, data = names.rank_tensors_file(rank), {name: TensorBytes(tensor.detach()) for name, tensor in own.items()}
        specs = {name: describe(name, tensor, 0, 1).spec for name, tensor in own.items()}
        header, begins = build_header(specs, RANK_FILE_ALIGNMENT)
        parts: list[bytes | memoryview] = [header, *(data[name].read(0, data[name].num_bytes) for name in begins)]
        writer.write_whole(file, b"".join(parts))
    if contents.rank_state:
        writer.write_whole(names.rank_state_file(rank), encode(to_exact(contents.rank_state)))


def write_common(writer: StepWriter, plan: SavePlan, contents: Contents) -> None:
    """Write what stands once in a step: headers, indexes, state, files that go along. Coordinator only."""
    for section, files in plan.layout.items():
        for file in files:
            writer.write(file.name, file.file_bytes, 0, file.header)
        if files:
            writer.write_whole(names.index_file(section), index_json(list(files), plan.specs[section]))
    copy_model_files(writer, contents.model_files)
    writer.write_whole(names.STATE, encode(to_exact(plan.state)))


def copy_model_files(writer: StepWriter, files: Mapping[str, Path]) -> None:
    """Copy files that go along with the model into `model/`."""
    for name, path in files.items():
        names.check_file_name(f"model/{name}")
        writer.write_whole(f"model/{name}", posix.read_file(path, MAX_MODEL_FILE_BYTES))


def make_manifest(plan: SavePlan, contents: Contents, written: Sequence[Written]) -> Manifest:
    """Check that every byte of every block was written once, and return the manifest. Coordinator only.

    Args:
        plan: of the step.
        contents: for the conditions and the mesh.
        written: what each rank wrote, by rank.

    Raises:
        FormatError: some bytes of a block were not written, or were written twice; or a name is one that readers refuse.
    """
    sums, pieces = merge_sums([sums for sums, _ in written], BLOCK_BYTES), [pieces for _, pieces in written]
    manifest = Manifest(
        step=plan.step,
        parent=None,
        block_bytes=BLOCK_BYTES,
        files={name: FileRecord(sums[name].file_bytes, tuple(sums[name].finish())) for name in sorted(sums)},
        tensors=piece_records(plan, pieces) if plan.files == "by_rank" else records(plan),
        aliases=plan.aliases,
        saved_by={"ckptlab": ckptlab.__version__, "world_size": len(written), "mesh": mesh_of(contents.model)},
        exact_if=contents.exact_if,
    )
    return Manifest.parse(manifest.to_json())  # what no reader would take must not be committed


def write_manifest(writer: StepWriter, manifest: Manifest) -> None:
    """Write the manifest, and make the names of all files durable. Coordinator only.

    Raises:
        StepError: a file is not as it was written.
    """
    for file, what in file_faults(writer.directory, manifest):
        raise StepError(f"{writer.directory / file}: {what}, though it was written; who else works in this directory?")
    posix.write_file(writer.directory / names.MANIFEST, manifest.to_json())
    for folder in {(writer.directory / name).parent for name in (*manifest.files, names.MANIFEST)}:
        posix.sync_directory(folder)


def commit(temporary: Path, path: Path) -> None:
    """Rename the directory: from here on the step exists, and durably so. Coordinator only."""
    posix.rename(temporary, path)
    posix.sync_directory(path.parent)
