"""Load one step: checked on all ranks before the first tensor changes, from however many ranks wrote it.

1. open      every rank reads the manifest and the state; all must have read the same
2. plan      ask what is wanted; compare names, dtypes and shapes with what the step holds
3. verify    read everything that is wanted and compare the sums of its blocks; nothing changes yet
4. fill      read again, verified again, into the tensors

A rank reads only its own part of a block, and the ranks put their sums together: read whole by each, a block of which four
ranks want a quarter would be read four times. What their parts do not prove is read again, whole, by each.

A failure before `fill`, on any rank, leaves everything on every rank as it was.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ckptlab.checkpoint.collectives import Group, RanksDisagree, attempt
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.match import Read, match, refuse_names, refuse_renames
from ckptlab.checkpoint.plan import describe_all, read_strips
from ckptlab.checkpoint.tensor_bytes import DTYPES, CastBytes, TensorBytes, from_exact
from ckptlab.checkpoint.tensors import LocalTensor, describe
from ckptlab.errors import CorruptError, LoadError, ResumeError, StepError
from ckptlab.format import names
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.exact import MAX_STATE_BYTES, decode
from ckptlab.format.manifest import Manifest
from ckptlab.format.records import Piece, TensorRecord
from ckptlab.format.spans import Spans, unproved
from ckptlab.format.strips import Rows, Strip, cut_at_blocks, rows
from ckptlab.steps.frames import Frames
from ckptlab.steps.reading import rank_tensors
from ckptlab.steps.steps import read_step
from ckptlab.steps.verified import StepReader
from ckptlab.storage import Place, place, store

State = Mapping[str, Any]
Wanted = Callable[[Manifest, State], Contents]
Data = TensorBytes | CastBytes
ERRORS: dict[str | None, type[LoadError]] = {cls.__name__: cls for cls in (CorruptError, ResumeError)}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Loaded:
    """What a load gave.

    Attributes:
        manifest: of the step.
        contents: what was wanted, its tensors filled.
        state: what is the same on all ranks.
        rank_state: this rank's own; empty where no `rank_tensors` were wanted.
        missing: by section the names that some rank wanted and the step does not have; none unless told `strict=False`.
        unexpected: by section the names that the step has and no rank wanted; none unless told `strict=False`.
    """

    manifest: Manifest
    contents: Contents
    state: State
    rank_state: State
    missing: Mapping[str, list[str]]
    unexpected: Mapping[str, list[str]]

    def __repr__(self) -> str:
        """Few words: a notebook shows what a last line gives, and the contents are a model."""
        missing, unexpected = (sum(map(len, names.values())) for names in (self.missing, self.unexpected))
        left = f", {missing} names missing, {unexpected} unexpected" if missing or unexpected else ""
        return f"<step {self.manifest.step}: {len(self.contents.model)} tensors of the model{left}>"


def load(
    step: str | Place,
    wanted: Wanted,
    *,
    model_only: bool = False,
    rename: Mapping[str, str] | None = None,
    cast: bool = False,
    strict: bool = True,
    verify_first: bool = True,
    need_whole: bool = True,
    group: Group | None = None,
) -> Loaded:
    """Fill live tensors from a step, and return them with the step's state. Every rank calls it.

    Args:
        step: the directory of the step, or its address in an object store: "s3://bucket/runs/mine/step-00010000".
        wanted: called with the manifest and the state before anything changes; returns the contents to fill. What belongs to
            one rank is read only if `rank_tensors` are wanted, and then from the file of this rank.
        model_only: leave the optimizer's state alone, wanted or not.
        rename: wanted name to the name that the step has it by, the same on every rank; other names are the same in the step.
        cast: read a floating dtype into another one, rounded as torch does.
        strict: refuse names that are wanted and not in the step, and names in the step that no rank wants. Told otherwise,
            the former stay as they are and the latter are left out; `Loaded` tells both. A further name of a tensor that is
            tied here is wanted when its bytes in the step are those of that tensor: other systems save both.
        verify_first: read twice, so that a damaged block is found before anything changes. Without it tensors are filled before
            all sums are known, and stay filled when one is wrong: for a caller that will overwrite everything.
        need_whole: refuse a step of which any file is missing. Told otherwise, only files that some rank wants must be there,
            each where that rank looks: `step` may be another place on each rank, with the same manifest; see `wanted_files`.
        group: the ranks; None makes a group of all ranks for this call.

    Raises:
        CorruptError: a block is not as it was written; names file, block and tensors.
        LoadError: anything else: the step is not whole, holds other names, dtypes or shapes, or cannot be read. Raised on every
            rank alike; `state_changed` says whether tensors may have been changed.
    """
    changing = False
    try:
        with Group.lent(group) as ranks:
            loading = _Loading(step, wanted, ranks, need_whole)
            ranks.agree(attempt(loading.open), _refuse_different_steps)
            sections = names.SECTIONS[:1] if model_only else names.SECTIONS
            planned = attempt(lambda: loading.plan(sections, rename or {}, cast, strict))
            left = ranks.agree(planned, lambda everybody: _left_over(everybody, rename or {}, strict))
            if verify_first:
                _read(loading, ranks, fill=False)
            changing = True
            _read(loading, ranks, fill=True)
            return loading.loaded(**left)
    except RanksDisagree as error:
        kind = ERRORS.get(error.kind, LoadError)
        raise kind(f"{step} is not loaded: {error}", state_changed=changing) from error


def _read(loading: "_Loading", ranks: Group, fill: bool) -> None:
    """Read everything that is wanted, verified, into the tensors or only to verify it. Every rank calls it."""
    unproved = ranks.agree(attempt(lambda: loading.read(fill)), loading.unproved)
    ranks.agree(attempt(lambda: loading.read_again(unproved, fill)))


def wanted_files(step: Place, manifest: Manifest, wanted: Wanted, group: Group) -> list[str]:
    """Return the files that this rank reads when it loads what is wanted, at least; nothing is communicated.

    Args:
        step: where this rank has the step's `state.json`, already verified.
        manifest: of the step.
        wanted: as for `load`, which calls it again.
        group: the ranks that will load.
    """
    state = from_exact(decode(store.read_file(step / names.STATE, MAX_STATE_BYTES)))
    contents = wanted(manifest, state)
    own = {names.rank_tensors_file(group.rank), names.rank_state_file(group.rank)} if contents.rank_tensors else set()
    files = {names.STATE, *(own & manifest.files.keys())}
    for section, tensors in describe_all(contents, group.rank, group.world_size).items():
        ties = {alias: tensors[name] for alias, name in contents.aliases.items()} if section == "model" else {}
        for name, local in (*tensors.items(), *ties.items()):
            record = manifest.tensors[section].get(manifest.aliases.get(name, name))
            files.update(piece.file for piece in (record.pieces if record else ()) if _shares(local, piece))
    return sorted(files)


def _shares(local: LocalTensor, piece: Piece) -> bool:
    return any(part.box.intersect(piece.box) for part in local.parts)


class _Loading:
    """One load on one rank; nothing is communicated here."""

    def __init__(self, named: str | Place, wanted: Wanted, group: Group, need_whole: bool) -> None:
        self._state: State = {}
        self._rank_state: State = {}
        self._named, self._wanted, self._group, self._need_whole = named, wanted, group, need_whole
        self._path: Place
        self._manifest: Manifest
        self._contents: Contents
        self._reads: list[_Located] = []

    def open(self) -> str:
        """Read manifest and state, and return a digest of the manifest, which has the sum of the state in it."""
        self._path = place(self._named)
        step = read_step(self._path)
        if step.manifest is None or (self._need_whole and step.fault is not None):
            raise StepError(f"the step is not whole: {step.fault}")
        self._manifest = step.manifest
        self._state = self._read_state(names.STATE)
        return hashlib.sha256(self._manifest.to_json()).hexdigest()

    def plan(
        self, sections: Sequence[str], rename: Mapping[str, str], cast: bool, strict: bool
    ) -> dict[str, dict[str, list[str]]]:
        """Find the pieces of everything that is wanted; return by section which names are left over, and in what way."""
        wanted = self._wanted(self._manifest, self._state)
        contents = self._contents = wanted if len(sections) > 1 else replace(wanted, optim={})
        tensors = describe_all(contents, self._group.rank, self._group.world_size)
        own = self._plan_own(contents) if contents.rank_tensors else {}
        left = {}
        for section in sections:
            held = {**self._manifest.tensors[section], **(own if section == "model" else {})}
            ties = contents.aliases if section == "model" and strict else {}
            matched = match(section, tensors[section], held, self._manifest.aliases, rename, cast, ties)
            self._check_ties(matched.ties)
            self._reads += _located(section, matched.reads)
            unknown = [name for name in rename if name not in tensors[section]]
            left[section] = {"missing": matched.missing, "unexpected": matched.unexpected, "unknown": unknown}
        return left

    def read(self, fill: bool) -> Spans:
        """Read everything that is wanted; return what this rank alone does not prove to be as it was written.

        Raises:
            CorruptError: a block that had to be read whole is not.
        """
        with StepReader(self._path, self._manifest) as reader, Frames(self._path, self._manifest, reader) as frames:
            for file, end in self._headers().items():
                for cut in cut_at_blocks(Strip(0, 0, end), self._manifest.block_bytes):
                    reader.read_run(file, cut.begin, cut.length)
            for data, read, strip in self._strips():
                if read.encoded is not None:
                    _put_all(data, frames.read(read.encoded, strip), fill)
                elif isinstance(data, TensorBytes) and self._is_run(strip):
                    for cut in cut_at_blocks(strip, self._manifest.block_bytes):
                        _read_run(reader, data, read.piece.file, cut, fill)
                else:
                    _put_all(data, reader.read(read.piece.file, strip), fill)
            return reader.sums.in_doubt()

    def unproved(self, everybody: list[Spans]) -> dict[str, list[int]]:
        """Return by file the blocks that all ranks together do not prove either."""
        return unproved(everybody, self._manifest.files, self._manifest.block_bytes)

    def read_again(self, blocks: Mapping[str, Sequence[int]], fill: bool) -> None:
        """Read what is wanted of these blocks of files again, each block whole and verified.

        Raises:
            CorruptError: a block is not as it was written.
        """
        with StepReader(self._path, self._manifest) as reader:
            for data, read, strip in self._strips():
                file, is_raw = read.piece.file, read.encoded is None
                if is_raw and file in blocks and isinstance(data, TensorBytes) and self._is_run(strip):
                    for cut in cut_at_blocks(strip, self._manifest.block_bytes):
                        if cut.begin // self._manifest.block_bytes in blocks[file]:
                            _put_all(data, reader.read(file, cut), fill)

    def loaded(self, missing: Mapping[str, list[str]], unexpected: Mapping[str, list[str]]) -> Loaded:
        """Return what this load gave."""
        return Loaded(
            manifest=self._manifest,
            contents=self._contents,
            state=self._state,
            rank_state=self._rank_state,
            missing=missing,
            unexpected=unexpected,
        )

    def _plan_own(self, contents: Contents) -> dict[str, TensorRecord]:
        """Find the pieces of what belongs to this rank; return those of buffers of which it kept its own values, by name."""
        rank = self._group.rank
        files = names.rank_tensors_file(rank), names.rank_state_file(rank)
        if not set(files) <= self._manifest.files.keys():
            raise LoadError(
                f"the step has no {' and '.join(files)}; it was saved by {self._manifest.saved_by.get('world_size', '?')} ranks"
            )
        with StepReader(self._path, self._manifest) as reader:
            reader.check(files[0])  # its header is not to be believed before its sums were found right
        held = rank_tensors(self._path, files[0])
        buffers = {name.removeprefix(names.BUFFER): held.pop(name) for name in list(held) if name.startswith(names.BUFFER)}
        wanted = {name: describe(name, tensor, 0, 1) for name, tensor in contents.rank_tensors.items()}
        matched = match("ranks", wanted, held, {}, {}, cast=False, ties={})
        refuse_names("ranks", matched.missing, matched.unexpected, {})
        self._reads += _located("ranks", matched.reads)
        self._rank_state = self._read_state(files[1])
        return buffers

    def _check_ties(self, ties: Sequence[tuple[Read, Read]]) -> None:
        """Refuse a step that has other bytes by a further name of a tensor; one pair at a time is in memory."""
        with StepReader(self._path, self._manifest) as reader, Frames(self._path, self._manifest, reader) as frames:
            for one, other in ties:
                same_spec = one[1].spec == other[1].spec
                if not same_spec or not torch.equal(*(_read_apart(read, reader, frames) for read in (one, other))):
                    raise LoadError(
                        f"model: {one[2]!r} and {other[2]!r} are tied in this model and differ in the step; load it into one "
                        f"that does not tie them, or take the weights alone: load_weights(strict=False) leaves {other[2]!r} out"
                    )

    def _read_state(self, file: str) -> State:
        with StepReader(self._path, self._manifest) as reader:
            state = from_exact(decode(reader.read_whole(file, MAX_STATE_BYTES)))
        if not isinstance(state, dict):
            raise LoadError(f"{file} holds a {type(state).__name__}, expected an object; do not use this step")
        return state

    def _headers(self) -> dict[str, int]:
        """Return where the tensors begin in every file, for the one rank that reads what stands before them, for the sums."""
        ends: dict[str, int] = {}
        if self._group.is_coordinator and self._need_whole and isinstance(self._path, Path):
            for record in (record for named in self._manifest.tensors.values() for record in named.values()):
                for piece in record.pieces:
                    ends[piece.file] = min(piece.begin, ends.get(piece.file, piece.begin))
        return ends

    def _strips(self) -> Iterator[tuple[Data, "_Located", Strip]]:
        """Yield what is wanted: its bytes, where it is, and each strip.

        In the order of the files, not of the tensors: in one writer's file lie small pieces of many tensors.
        """
        for read in sorted(self._reads, key=lambda read: (read.piece.file, read.piece.begin)):
            local, dtype = read.local, read.dtype
            data = TensorBytes(local.data) if dtype == local.spec.dtype else CastBytes(local.data, DTYPES[dtype])
            for strip in read.strips:
                yield data, read, strip
            data.flush()

    def _is_run(self, strip: Strip) -> bool:
        """Whether to read a strip alone: it is one run, on a disk; in a store each read is a request."""
        return strip.num_runs == 1 and isinstance(self._path, Path)


class _Located(NamedTuple):
    """What a rank reads of a piece, whose values have `dtype`.

    Where the tensor is `encoded`, which says its section and name, strips begin in the tensor's bytes; else in the file.
    """

    piece: Piece
    local: LocalTensor
    dtype: str
    strips: list[Strip]
    encoded: tuple[str, str] | None


def _located(section: str, reads: Iterable[Read]) -> Iterator[_Located]:
    for local, record, name in reads:
        dtype = record.spec.dtype
        for piece in record.pieces:
            if _shares(local, piece):
                encoded = None if record.encoding is None else (section, name)
                begin = piece if encoded is None else replace(piece, begin=0)
                yield _Located(piece, local, dtype, list(read_strips(begin, local, ITEM_BYTES[dtype])), encoded)


def _read_apart(read: Read, reader: StepReader, frames: Frames) -> Tensor:
    """Return the bytes of this rank's part of a tensor as the step has them, verified."""
    local, record, name = read
    part = torch.zeros(local.data.shape, dtype=DTYPES[record.spec.dtype])
    apart = replace(local, spec=record.spec, data=part)
    for located in _located("model", [(apart, record, name)]):
        for strip in located.strips:
            if located.encoded is None:
                _put_all(TensorBytes(part), reader.read(located.piece.file, strip), fill=True)
            else:
                _put_all(TensorBytes(part), frames.read(located.encoded, strip), fill=True)
    return part.reshape(-1).view(torch.uint8)


def _read_run(reader: StepReader, data: TensorBytes, file: str, cut: Strip, fill: bool) -> None:
    memory = data.memory(cut) if fill else None
    run = reader.read_run(file, cut.begin, cut.length, memory)
    if fill and memory is None:
        data.put(cut, rows(run, 0, cut.length, num_runs=1, step=0))


def _put_all(data: Data, parts: Iterable[tuple[Strip, Rows]], fill: bool) -> None:
    for cut, part in parts:
        if fill:
            data.put(cut, part)


def _refuse_different_steps(digests: list[str]) -> None:
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            raise LoadError(f"rank {rank} reads another manifest than rank 0: all ranks must share the storage")


def _left_over(
    everybody: list[dict[str, dict[str, list[str]]]], rename: Mapping[str, str], strict: bool
) -> dict[str, dict[str, list[str]]]:
    """Return by section the names that some rank misses and those that no rank wants; refuse them if `strict`."""
    missing = {section: sorted(set().union(*(told[section]["missing"] for told in everybody))) for section in everybody[0]}
    unexpected = {section: _common([told[section]["unexpected"] for told in everybody]) for section in everybody[0]}
    refuse_renames(_common([left["unknown"] for told in everybody for left in told.values()]))
    for section in everybody[0] if strict else ():
        refuse_names(section, missing[section], unexpected[section], rename)
    return {"missing": missing, "unexpected": unexpected}


def _common(told: Sequence[Sequence[str]]) -> list[str]:
    return sorted(set(told[0]).intersection(*told))
