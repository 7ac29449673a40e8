"""What the nodes still have of a tier's steps, and one of these brought to where it is wanted. Every rank calls these.

A step can be restored when all nodes that have its manifest have the same one, and every file in it is on some node.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from isal.isal_zlib import crc32

from ckptlab.checkpoint.collectives import Group, Outcome, RanksDisagree, attempt
from ckptlab.checkpoint.load import ERRORS, Wanted, wanted_files
from ckptlab.errors import CorruptError, LoadError, StepError
from ckptlab.format.checksums import BLOCK_BYTES, block_ranges
from ckptlab.format.manifest import MAX_MANIFEST_BYTES, Manifest
from ckptlab.format.names import MANIFEST, STATE, step_name
from ckptlab.format.records import FileRecord
from ckptlab.steps.housekeeping import set_aside
from ckptlab.steps.steps import file_faults, read_step, step_numbers
from ckptlab.steps.verified import StepReader
from ckptlab.storage import posix
from ckptlab.tiers.moves import Move, Nodes, missing
from ckptlab.tiers.nodes import Here
from ckptlab.tiers.passing import pass_files


class NodeStep(NamedTuple):
    """A step of which nodes have something; `fault` is None when it can be restored, as far as files and sizes tell."""

    number: int
    fault: str | None


def steps_on_nodes(directory: Path, group: Group) -> list[NodeStep]:
    """Return the steps that nodes have, newest first; see `NodeTier.steps`."""
    try:
        here = Here.of(directory, group)
        found = group.agree(attempt(lambda: _found(here.folder) if here.is_leader else {}), _whole)
    except RanksDisagree as error:
        raise LoadError(f"the steps in {directory} of the nodes are not known: {error}") from error
    return [NodeStep(number, fault) for number, fault in found]


def _found(folder: Path) -> dict[str, list[Any]]:
    """Return by step the digest of its manifest, how many files that lists, and which of them are here with their size."""
    found = {}
    for path in (folder / step_name(number) for number in step_numbers(folder)):
        step = read_step(path)
        if step.manifest is not None:
            faulty = dict(file_faults(path, step.manifest))
            digest = hashlib.sha256(step.manifest.to_json()).hexdigest()
            found[str(step.number)] = [digest, len(step.manifest.files), [f for f in step.manifest.files if f not in faulty]]
    return found


def _whole(told: Sequence[Mapping[str, Sequence[Any]]]) -> list[tuple[int, str | None]]:
    """Return each step that some node has with its fault, newest first, from what `_found` gave on each rank."""
    numbers = sorted({int(number) for found in told for number in found}, reverse=True)
    return [(number, _fault([found[str(number)] for found in told if str(number) in found])) for number in numbers]


def _fault(copies: Sequence[Sequence[Any]]) -> str | None:
    if len({digest for digest, _, _ in copies}) > 1:
        return "nodes have different manifests of it: it was saved more than once"
    there, num_files = set().union(*(files for _, _, files in copies)), copies[0][1]
    return None if len(there) == num_files else f"{num_files - len(there)} of its {num_files} files are on no node"


def prepare_on_nodes(directory: Path, step: int, group: Group, wanted: Wanted | None, durable: bool) -> Path:
    """Bring a step to every node and return its directory on this rank's node; see `NodeTier.prepare`."""
    try:
        here = Here.of(directory, group)
        return _Bringing(here, step, group, durable).bring(wanted)
    except RanksDisagree as error:
        kind = ERRORS.get(error.kind, LoadError)
        advice = "" if kind is not LoadError or error.lost else "; make room, or remove the tier's folders to do without them"
        raise kind(f"step {step} in {directory} of the nodes is not loaded: {error}{advice}") from error


def delete_later_on_nodes(directory: Path, step: int, group: Group) -> None:
    """Delete what nodes have of later steps; see `NodeTier.delete_later`."""
    try:
        here = Here.of(directory, group)
        group.agree(attempt(lambda: _delete_later(here.folder, step) if here.is_leader else None))
    except RanksDisagree as error:
        raise LoadError(f"steps after {step} in {directory} of the nodes are not deleted: {error}") from error


def _delete_later(folder: Path, step: int) -> None:
    for path in (folder / step_name(number) for number in step_numbers(folder) if number > step):
        if posix.exists_directory(path):
            posix.remove_tree(set_aside(path, "trash"))


class _Bringing:
    """One step on its way to all nodes."""

    def __init__(self, here: Here, step: int, group: Group, durable: bool) -> None:
        self._here, self._group, self._durable = here, group, durable
        self._path = here.folder / step_name(step)

    def bring(self, wanted: Wanted | None) -> Path:
        """Bring first what says what else is needed, then that."""
        manifest = self._bring_manifest()
        rest = [file for file in manifest.files if file != STATE]
        self._bring_files(manifest, [STATE], lambda: [STATE])
        self._bring_files(manifest, rest, lambda: rest if wanted is None else self._needed(manifest, wanted))
        return self._path

    def _needed(self, manifest: Manifest, wanted: Wanted) -> list[str]:
        return [file for file in wanted_files(self._path, manifest, wanted, self._group) if file != STATE]

    def _bring_manifest(self) -> Manifest:
        own = attempt(lambda: _record_of_manifest(self._path) if self._here.is_leader else None)
        record, moves = self._group.agree(own, lambda told: _manifest_moves(self._here.nodes, told))
        self._pass(moves, {MANIFEST: FileRecord.parse(record, MANIFEST, BLOCK_BYTES)}, BLOCK_BYTES)
        read = attempt(lambda: Manifest.parse(posix.read_file(self._path / MANIFEST, MAX_MANIFEST_BYTES)))
        self._group.agree(Outcome(error=read.error))
        manifest: Manifest = read.value
        return manifest

    def _bring_files(self, manifest: Manifest, files: Sequence[str], needed: Callable[[], Sequence[str]]) -> None:
        """Verify which of `files` this node has, and get from other nodes what is needed here and is not good."""
        verified = attempt(lambda: self._verified(manifest, files))
        told = verified.then(lambda: [needed(), *verified.value])
        self._pass(self._group.agree(told, self._missing), manifest.files, manifest.block_bytes)

    def _missing(self, everybody: list[Any]) -> list[Move]:
        needed, good, bad = zip(*everybody, strict=True)
        return missing(self._here.nodes, needed, good, {file: what for told in bad for file, what in told.items()})

    def _verified(self, manifest: Manifest, files: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Return of this rank's share of what its node has the files that are good, and what is wrong with others."""
        ranks = self._here.nodes.ranks[self._here.folder.name]
        share = [file for file in files if posix.size_of(self._path / file) is not None][
            ranks.index(self._group.rank) :: len(ranks)
        ]
        bad = {}
        with StepReader(self._path, manifest) as reader:
            for file in share:
                try:
                    reader.check(file)
                except CorruptError as error:
                    bad[file] = str(error)
        return [file for file in share if file not in bad], bad

    def _pass(self, moves: Sequence[Sequence[Any]], records: Mapping[str, FileRecord], block_bytes: int) -> None:
        known = [Move(*move) for move in moves]
        passed = attempt(lambda: pass_files(known, self._path, records, block_bytes, self._group, self._durable))
        self._group.agree(passed)


def _record_of_manifest(path: Path) -> dict[str, object] | None:
    """Return size and sums of a manifest itself; None when the node has none that can be read."""
    if read_step(path).manifest is None:
        return None
    data = posix.read_file(path / MANIFEST, MAX_MANIFEST_BYTES)
    return FileRecord(len(data), tuple(crc32(data[b:e]) for b, e in block_ranges(len(data), BLOCK_BYTES))).to_json()


def _manifest_moves(nodes: Nodes, told: Sequence[Any]) -> tuple[Any, list[Move]]:
    """Return the record of the manifest, and how it reaches the leaders that have none."""
    having = [rank for rank in nodes.leaders if told[rank] is not None]
    if not having or any(told[rank] != told[having[0]] for rank in having):
        raise StepError("nodes have different manifests of it" if having else "no node has its manifest")
    moves = [Move(MANIFEST, having[0], rank) for rank in nodes.leaders if rank not in having]
    return told[having[0]], moves
