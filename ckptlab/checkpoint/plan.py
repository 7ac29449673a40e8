"""Decide which bytes a rank writes and which it reads: pure functions of descriptions; nothing communicated, nothing opened.

Every rank derives the same files, the same headers and the same position of every tensor from (name, dtype, shape), so that
each can write its own boxes into the final files (`plan_save`, `write_runs`). A read goes the other way: from the pieces
that a manifest knows to the box that a rank wants (`read_runs`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.tensors import LocalTensor, describe
from ckptlab.errors import LoadError
from ckptlab.format.boxes import Box, copy_runs, whole
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.files import FileLayout, lay_out
from ckptlab.format.header import TensorSpec
from ckptlab.format.manifest import Piece, TensorRecord

Tensors = Mapping[str, Mapping[str, LocalTensor]]
"""Section (`model`, `optim`) to name to this rank's part of the tensor."""

Read = tuple[LocalTensor, TensorRecord]
"""What a rank wants of a tensor, and where the step has it."""


def describe_all(contents: Contents, rank: int, world_size: int) -> dict[str, dict[str, LocalTensor]]:
    """Return this rank's part of every tensor, by section and name, names sorted."""
    sections = {"model": contents.model, "optim": contents.optim}
    return {
        section: {name: describe(name, tensors[name], rank, world_size) for name in sorted(tensors)}
        for section, tensors in sections.items()
    }


@dataclass(frozen=True, slots=True)
class SavePlan:
    """What a rank saves, and into which files.

    Attributes:
        step: the step's number.
        tensors: this rank's part of every tensor, by section and name.
        layout: the files that all ranks share, by section: the same on every rank.
    """

    step: int
    tensors: Tensors
    layout: Mapping[str, Sequence[FileLayout]]

    def specs(self, section: str) -> dict[str, TensorSpec]:
        """Return dtype and global shape of every tensor of a section."""
        return {name: local.spec for name, local in self.tensors[section].items()}

    def positions(self) -> Iterator[tuple[str, str, FileLayout, int]]:
        """Yield every tensor in the order of the files: section, name, file, and where in the file the tensor begins."""
        for section, files in self.layout.items():
            for file in files:
                for name, begin in file.begins.items():
                    yield section, name, file, begin

    def records(self) -> dict[str, dict[str, TensorRecord]]:
        """Return what the manifest says of every tensor: one piece each, the whole."""
        records: dict[str, dict[str, TensorRecord]] = {section: {} for section in self.layout}
        for section, name, file, begin in self.positions():
            spec = self.tensors[section][name].spec
            records[section][name] = TensorRecord(spec, (Piece(file.name, begin, whole(spec.shape)),))
        return records


def plan_save(step: int, contents: Contents, rank: int, world_size: int) -> SavePlan:
    """Describe this rank's part of everything, and lay the files out."""
    tensors = describe_all(contents, rank, world_size)
    specs = {section: {name: local.spec for name, local in named.items()} for section, named in tensors.items()}
    return SavePlan(step, tensors, {section: lay_out(section, named) for section, named in specs.items()})


def write_runs(begin: int, local: LocalTensor, rank: int, block_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield what `rank` writes of its part: (position in the file, position in the part's own bytes, length).

    Runs end at the borders of the file's blocks. Of a box that R ranks hold, block b is written by the replica b mod R: whole
    blocks, so that two ranks never sum one block of the same tensor, and every replica takes an equal share.

    Args:
        begin: where the tensor begins in its file, in bytes.
        local: the rank's part.
        rank: one of `local.replicas`.
        block_bytes: the span of one checksum.
    """
    replica, num_replicas = local.replicas.index(rank), len(local.replicas)
    for source, start, length in _runs(whole(local.spec.shape), local):
        position, end = begin + source, begin + source + length
        while position < end:
            block = position // block_bytes
            cut = min(end, (block + 1) * block_bytes)
            if block % num_replicas == replica:
                yield position, start + position - begin - source, cut - position
            position = cut


def read_runs(piece: Piece, local: LocalTensor) -> Iterator[tuple[int, int, int]]:
    """Yield what this rank reads of a piece: (position in the file, position in the rank's part, length)."""
    for source, start, length in _runs(piece.box, local):
        yield piece.begin + source, start, length


def _runs(box: Box, local: LocalTensor) -> Iterator[tuple[int, int, int]]:
    """Yield the runs that a box of the tensor and the rank's part share: (position in the box, in the part, length)."""
    everything = whole(local.data.shape)
    for part in local.parts:
        here = Box(part.at, part.box.shape)
        yield from copy_runs(box.moved(part.shift), everything, ITEM_BYTES[local.spec.dtype], within=here)


def match(
    section: str, wanted: Mapping[str, LocalTensor], held: Mapping[str, TensorRecord], aliases: Mapping[str, str]
) -> list[Read]:
    """Return what to read for `wanted`, in the order in which it lies in the files.

    A wanted name that the step has as an alias is read from the tensor that it is tied to.

    Raises:
        LoadError: a name is wanted and not held, or held and not wanted, or a dtype or shape differs. Names the first few.
    """
    reads = {name: (local, held[aliases.get(name, name)]) for name, local in wanted.items() if aliases.get(name, name) in held}
    wrong = [f"{name!r} is not in the step" for name in sorted(wanted.keys() - reads.keys())]
    used = {aliases.get(name, name) for name in reads}
    wrong += [f"{name!r} is in the step and not wanted" for name in sorted(held.keys() - used)]
    wrong += [
        f"{name!r} is {record.spec} in the step, wanted {local.spec}"
        for name, (local, record) in sorted(reads.items())
        if record.spec != local.spec
    ]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise LoadError(f"{section}: {'; '.join(wrong[:3])}{more}. Was the step saved by another model?")
    return sorted(reads.values(), key=lambda read: [(piece.file, piece.begin) for piece in read[1].pieces])
