"""Decide which bytes a rank writes and which it reads: pure functions of descriptions; nothing communicated, nothing opened.

Every rank derives the same files, the same headers and the same position of every tensor from (name, dtype, shape) and
`max_file_bytes`, so that each can write its own boxes into the final files (`plan_save`, `write_strips`). A read goes the other
way: from the pieces that a manifest knows to the box that a rank wants (`read_strips`). A strip begins in a file, and locally
in a rank's part.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.tensors import LocalTensor, describe
from ckptlab.errors import UsageError
from ckptlab.format.boxes import Box, copy_strips, whole
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.files import FileLayout, lay_out
from ckptlab.format.header import TensorSpec
from ckptlab.format.names import parse_step, step_name
from ckptlab.format.records import Piece, TensorRecord
from ckptlab.format.strips import Strip, cut_at_blocks

Tensors = Mapping[str, Mapping[str, LocalTensor]]
"""Section (`model`, `optim`) to name to this rank's part of the tensor."""

Layout = Mapping[str, Sequence[FileLayout]]
"""Section to the files that all ranks share."""

Files = Literal["by_tensor", "by_rank"]
"""Whether all ranks write into files of whole tensors, or each into a file of its own; see `ckptlab.checkpoint.pieces`."""

FILES = get_args(Files)


def describe_all(contents: Contents, rank: int, world_size: int) -> Tensors:
    """Return this rank's part of every tensor, by section and name, names sorted."""
    if contents.copies is not None:
        return contents.copies
    sections = {"model": contents.model, "optim": contents.optim}
    return {
        section: {name: describe(name, tensors[name], rank, world_size) for name in sorted(tensors)}
        for section, tensors in sections.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePlan:
    """What a rank saves, and into which files.

    Attributes:
        step: the step's number.
        tensors: this rank's part of every tensor that it holds, by section and name.
        specs: dtype and global shape of every tensor of the step, by section and name: the same on every rank.
        aliases: further names of tied tensors: the same on every rank.
        state: what `state.json` will hold: the same on every rank.
        max_file_bytes: of tensors in a file: the same on every rank.
        layout: the files that all ranks share, by section: the same on every rank; none where each rank has its own.
        files: who writes into which files: the same on every rank.
        is_united: whether the ranks have told each other who holds what; needed where not all hold the same names.
        kept_apart: buffers of the model that differ between ranks; each rank also keeps its own.
    """

    step: int
    tensors: Tensors
    specs: Mapping[str, Mapping[str, TensorSpec]]
    aliases: Mapping[str, str]
    state: Mapping[str, Any]
    max_file_bytes: int
    layout: Layout
    files: Files = "by_tensor"
    is_united: bool = False
    kept_apart: frozenset[str] = frozenset()

    def united(
        self, specs: Mapping[str, Mapping[str, TensorSpec]], replicas: Mapping[str, Mapping[str, Sequence[int]]]
    ) -> Self:
        """Return the plan for a step of which all names are known, and of this rank's own names the replicas."""
        tensors = {
            section: {name: replace(local, replicas=tuple(replicas[section][name])) for name, local in named.items()}
            for section, named in self.tensors.items()
        }
        layout = _lay_out_all(specs, self.max_file_bytes, self.files)
        return replace(self, tensors=tensors, specs=specs, layout=layout, is_united=True)

    def keeping_apart(self, names: Collection[str]) -> Self:
        """Return the plan in which the first replica writes these buffers into `model/`, and every rank keeps its own."""
        model = {
            name: replace(local, replicas=local.replicas[:1]) if name in names else local
            for name, local in self.tensors["model"].items()
        }
        return replace(self, tensors={**self.tensors, "model": model}, kept_apart=frozenset(names))


def plan_save(
    step: int, contents: Contents, rank: int, world_size: int, max_file_bytes: int, files: Files = "by_tensor"
) -> SavePlan:
    """Describe this rank's part of everything, as if every rank held the same names.

    Raises:
        UsageError: a tensor cannot be saved, no directory can have this step's name, no byte may stand in a file, or `files`
            is another word.
    """
    if files not in FILES:
        raise UsageError(f"files={files!r}: {' or '.join(map(repr, FILES))}")
    if max_file_bytes < 1:
        raise UsageError(f"max_file_bytes={max_file_bytes}: at least 1")
    if parse_step(step_name(step)) != step:
        raise UsageError(f"step {step}: a step is a number from 0 to 10**18 - 1")
    tensors = describe_all(contents, rank, world_size)
    specs = {section: {name: local.spec for name, local in named.items()} for section, named in tensors.items()}
    return SavePlan(
        step=step,
        tensors=tensors,
        specs=specs,
        aliases=contents.aliases,
        state=contents.state,
        max_file_bytes=max_file_bytes,
        layout=_lay_out_all(specs, max_file_bytes, files),
        files=files,
    )


def _lay_out_all(specs: Mapping[str, Mapping[str, TensorSpec]], max_file_bytes: int, files: Files) -> Layout:
    if files == "by_rank":
        return {section: [] for section in specs}
    return {section: lay_out(section, named, max_file_bytes) for section, named in specs.items()}


def positions(layout: Layout, rank: int = 0, world_size: int = 1) -> Iterator[tuple[str, str, FileLayout, int]]:
    """Yield every tensor, file by file: section, name, file, and where in the file the tensor begins.

    Of F files rank r of W begins with file floor(r F / W): many writers of one file wait for each other.
    """
    files = [(section, file) for section, in_section in layout.items() for file in in_section]
    first = rank * len(files) // world_size
    for section, file in (*files[first:], *files[:first]):
        for name, begin in file.begins.items():
            yield section, name, file, begin


def records(plan: SavePlan) -> dict[str, dict[str, TensorRecord]]:
    """Return what the manifest says of every tensor of files that all ranks share: one piece each, the whole."""
    found: dict[str, dict[str, TensorRecord]] = {section: {} for section in plan.specs}
    for section, name, file, begin in positions(plan.layout):
        spec = plan.specs[section][name]
        found[section][name] = TensorRecord(spec, (Piece(file.name, begin, whole(spec.shape)),))
    return found


def write_strips(begin: int, local: LocalTensor, rank: int, block_bytes: int) -> Iterator[Strip]:
    """Yield what `rank` writes of its part, cut at the borders of the file's blocks.

    Of a box that R ranks hold, block b is written by the replica b mod R: whole blocks, so that two ranks never sum one block
    of the same tensor, and every replica takes an equal share.

    Args:
        begin: where the tensor begins in its file, in bytes.
        local: the rank's part.
        rank: who writes.
        block_bytes: the span of one checksum.
    """
    if rank not in local.replicas:
        return  # another rank's copy is the one that is written
    replica, num_replicas = local.replicas.index(rank), len(local.replicas)
    for strip in box_strips(whole(local.spec.shape), local, ITEM_BYTES[local.spec.dtype]):
        for cut in cut_at_blocks(strip.moved(begin), block_bytes):
            if cut.begin // block_bytes % num_replicas == replica:
                yield cut


def read_strips(piece: Piece, local: LocalTensor, item_bytes: int) -> Iterator[Strip]:
    """Yield what this rank reads of a piece; its own part is taken in the step's dtype, of `item_bytes` a value."""
    return (strip.moved(piece.begin) for strip in box_strips(piece.box, local, item_bytes))


def box_strips(box: Box, local: LocalTensor, item_bytes: int) -> Iterator[Strip]:
    """Yield what a box of the tensor and the rank's part share; a strip begins in the box."""
    everything = whole(local.data.shape)
    for part in local.parts:
        here = Box(part.at, part.box.shape)
        yield from copy_strips(box.moved(part.shift), everything, item_bytes, within=here)
