"""Which pieces a rank writes when every writer has a file of its own (`files="by_rank"`). Pure; a rank derives only its own.

`rank_file` says what one rank writes, `to_json` what it tells the coordinator of it, `piece_records` what all of that comes to.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ckptlab.checkpoint.plan import SavePlan, Tensors, box_strips
from ckptlab.checkpoint.tensors import LocalTensor
from ckptlab.format.boxes import Box
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.files import FileLayout
from ckptlab.format.header import DATA_ALIGNMENT, TensorSpec, build_header
from ckptlab.format.names import pieces_file
from ckptlab.format.records import Piece, TensorRecord
from ckptlab.format.strips import Strip, cut_at_blocks

LEAST_CUT_BYTES = 4 * 2**20  # a box that ranks share is not cut smaller: each piece is a line of the manifest
LEAST_DEALT_BYTES = 64 * 2**10


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPiece:
    """A box of a tensor that this rank writes, out of its local part."""

    section: str
    name: str
    local: LocalTensor
    box: Box

    @property
    def spec(self) -> TensorSpec:
        """What stands in the file."""
        return TensorSpec(self.local.spec.dtype, self.box.shape)

    @property
    def key(self) -> str:
        """The name in the file's header, for people: two pieces of a tensor differ in it. Readers go by the manifest."""
        sides = (f"{at}:{end}" for at, end in zip(self.box.offset, self.box.end, strict=True))
        return f"{self.section} {self.name} [{', '.join(sides)}]"

    def strips(self, begin: int, block_bytes: int) -> Iterator[Strip]:
        """Yield what is written of the piece, which begins at byte `begin` of the file, cut at the borders of blocks."""
        for strip in box_strips(self.box, self.local, ITEM_BYTES[self.local.spec.dtype]):
            yield from cut_at_blocks(strip.moved(begin), block_bytes)


@dataclass(frozen=True, slots=True)
class RankFile:
    """The one file of a rank, and by the names in its header the pieces in it."""

    layout: FileLayout
    pieces: Mapping[str, OwnPiece]

    def to_json(self) -> dict[str, dict[str, list[Any]]]:
        """Return by section and name what the coordinator needs to know of the pieces."""
        told: dict[str, dict[str, list[Any]]] = {}
        for key, piece in self.pieces.items():
            place = [self.layout.name, self.layout.begins[key], piece.box.offset, piece.box.shape]
            told.setdefault(piece.section, {}).setdefault(piece.name, []).append(place)
        return told


def rank_file(tensors: Tensors, rank: int) -> RankFile | None:
    """Return what a rank writes of its parts; None where that is nothing."""
    pieces = {piece.key: piece for piece in _own_pieces(tensors, rank)}
    if not pieces:
        return None
    header, begins = build_header({key: piece.spec for key, piece in pieces.items()}, DATA_ALIGNMENT)
    file_bytes = len(header) + sum(piece.spec.num_bytes for piece in pieces.values())
    return RankFile(FileLayout(pieces_file(rank), header, begins, file_bytes), pieces)


def piece_records(plan: SavePlan, told: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, TensorRecord]]:
    """Return what the manifest says of every tensor, by what all ranks told of their pieces, in the order of the ranks."""
    return {
        section: {name: TensorRecord(spec, tuple(_told_of(section, name, told))) for name, spec in named.items()}
        for section, named in plan.specs.items()
    }


def _told_of(section: str, name: str, told: Sequence[Mapping[str, Mapping[str, Any]]]) -> Iterator[Piece]:
    for of_rank in told:
        for file, begin, offset, shape in of_rank.get(section, {}).get(name, []):
            yield Piece(file, begin, Box(tuple(offset), tuple(shape)))


def _own_pieces(tensors: Tensors, rank: int) -> Iterator[OwnPiece]:
    """Yield this rank's share of every set of replicas: what such ranks hold alike they all deal out in the same way."""
    shared: dict[tuple[int, ...], list[OwnPiece]] = {}
    for section, named in tensors.items():
        for name, local in named.items():
            if rank in local.replicas:
                boxes = (cut for part in local.parts for cut in _cut(part.box, local))
                shared.setdefault(local.replicas, []).extend(
                    OwnPiece(section=section, name=name, local=local, box=box) for box in boxes if box.num_elements
                )
    for replicas, pieces in shared.items():
        yield from _dealt(pieces, len(replicas))[replicas.index(rank)]


def _dealt(pieces: Sequence[OwnPiece], num_replicas: int) -> list[list[OwnPiece]]:
    """Deal pieces out, large ones first, each to the replica that has the fewest bytes so far; tiny ones to the first replica.

    So the scalars of a sharded state stand in one file, not in all: whoever loads his shard needs few files.
    """
    tiny = [piece for piece in pieces if piece.spec.num_bytes < LEAST_DEALT_BYTES]
    large = [piece for piece in pieces if piece.spec.num_bytes >= LEAST_DEALT_BYTES]
    shares: list[list[OwnPiece]] = [tiny, *([] for _ in range(num_replicas - 1))]
    num_bytes = [sum(piece.spec.num_bytes for piece in share) for share in shares]
    for piece in sorted(large, key=lambda p: (-p.spec.num_bytes, p.section, p.name, p.box.offset)):
        least = num_bytes.index(min(num_bytes))
        shares[least].append(piece)
        num_bytes[least] += piece.spec.num_bytes
    return shares


def _cut(box: Box, local: LocalTensor) -> list[Box]:
    """Cut a large box that replicas share along its first dim that is long enough, into lengths that differ by one at most.

    10 rows of 2 MiB, on 4 ranks: rows 0-1, 2-4, 5-6 and 7-9.
    """
    num_bytes = box.num_elements * ITEM_BYTES[local.spec.dtype]
    count = min(len(local.replicas), num_bytes // LEAST_CUT_BYTES)
    dim = next((dim for dim, size in enumerate(box.shape) if size >= count), None)
    if count < 2 or dim is None:
        return [box]
    at, size = box.offset[dim], box.shape[dim]
    borders = [at + number * size // count for number in range(count + 1)]
    return [Box(_with(box.offset, dim, begin), _with(box.shape, dim, end - begin)) for begin, end in pairwise(borders)]


def _with(numbers: tuple[int, ...], dim: int, number: int) -> tuple[int, ...]:
    return (*numbers[:dim], number, *numbers[dim + 1 :])
