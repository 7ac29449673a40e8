"""Make committed steps small, afterwards: not while they are saved. On a disk; no torch.

1. encode    the small form is written into `.small-step-...`, beside the step, of which every block is verified first
2. verify    it is decoded and compared with the step, bit for bit where its codecs are exact
3. swap      it takes the step's place
4. clear     the former step is deleted

A run that is in use goes on meanwhile: its newest step is left alone, and nothing is stored against another step, which the run
could delete. One process at a time makes the steps of a run small; what a killed one left, the next one removes.
"""

import os
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ckptlab.errors import LoadError, StepError, UsageError
from ckptlab.format.codecs import CODECS, INT8, XOR
from ckptlab.format.manifest import Manifest
from ckptlab.format.names import SHRINK_LOCK, aside_name, parse_step, step_name
from ckptlab.steps.encoding import Source
from ckptlab.steps.events import append_event
from ckptlab.steps.housekeeping import remove_aside, settle_shrinks
from ckptlab.steps.small import Progress, SmallTensor, compare_small, gets_smaller, write_small
from ckptlab.steps.steps import MAX_CHAIN, Step, find_steps, list_steps, read_step
from ckptlab.steps.swap import is_in_use, swap
from ckptlab.steps.verify import verify
from ckptlab.storage import Place, RunLock, posix

PHASES = ("encode", "verify", "swap", "clear")


@dataclass(frozen=True, slots=True)
class Rule:
    """Tensors whose name, or section/name, fits a pattern like `optim/exp_avg::*` get a codec; None: none."""

    pattern: str
    codec: str | None

    def fits(self, section: str, name: str) -> bool:
        """Whether it is for this tensor."""
        return fnmatchcase(name, self.pattern) or fnmatchcase(f"{section}/{name}", self.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """A step that was made small: its bytes before and now, what it is stored against, and what became of its tensors."""

    step: int
    before: int
    after: int
    base: int | None
    tensors: Sequence[SmallTensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A step that is as it was, and why."""

    step: int
    why: str


def shrink(
    path: Place,
    rules: Sequence[Rule],
    *,
    parent: int | None = None,
    progress: Progress = lambda num_bytes: None,
    on_phase: Callable[[str], object] = lambda phase: None,
) -> list[Shrunk | Left]:
    """Make a step small, or all whole steps of a run but the newest, which a resume would take; tell of each, oldest first.

    Args:
        path: of the step or the run, on a disk.
        rules: the first that fits a tensor counts; one that none fits stays as it is, as one does that would not get smaller.
        parent: the step that tensors are stored against with `XOR`, where that is smaller than `PLANES` alone; else the one
            before, as long as no chain is too long.
        progress: gets bytes of tensors, each counted twice: encoded, and compared.
        on_phase: called after each of `PHASES`, for each step.

    Raises:
        StepError: another shrink is at work; or `path` is a step that is not whole, or damaged. Such a step of a run is left.
    """
    if not isinstance(path, Path):
        raise UsageError(f"{path} is in an object store, where nothing is replaced; make the steps of a run on a disk small")
    for rule in rules:
        if rule.codec not in (*CODECS, None):
            raise UsageError(f"codec {rule.codec!r}: one of {', '.join(CODECS)}")
    if parent is not None and all(rule.codec != XOR for rule in rules):
        raise UsageError(f"a parent, step {parent}, and no tensor that is to be stored against it: that is {XOR}")
    path = Path(os.path.abspath(path))
    chosen, is_run = [step.number for step in find_steps(path)], parse_step(path.name) is None
    run = path if is_run else path.parent
    lock = RunLock.take(run, SHRINK_LOCK)
    try:
        settle_shrinks(run)
        work = _Work(run, rules, parent, progress, on_phase)
        return [work.shrink(number, is_run) for number in chosen]
    finally:
        lock.release()


class _Work:
    """The steps of a run, and how they are to become small."""

    def __init__(
        self,
        run: Path,
        rules: Sequence[Rule],
        parent: int | None,
        progress: Progress,
        on_phase: Callable[[str], object],
    ) -> None:
        self._run, self._rules, self._parent, self._progress, self._on_phase = run, rules, parent, progress, on_phase
        self._steps: dict[int, Step] = {step.number: step for step in list_steps(run)}
        self._newest = max((number for number, step in self._steps.items() if step.whole), default=None)

    def shrink(self, number: int, is_run: bool) -> Shrunk | Left:
        """Make a step small; what keeps one of a run from it is told, so that the others can be."""
        if is_run and number == self._newest:
            return Left(step=number, why="the newest step, which a resume takes; name it to make it small too")
        try:
            return self._shrink(number)
        except (StepError, LoadError, OSError) as error:
            if not is_run:
                raise
            return Left(step=number, why=str(error))
        finally:
            if number in self._steps:
                self._steps[number] = read_step(self._steps[number].path)

    def _shrink(self, number: int) -> Shrunk | Left:
        step = self._steps.get(number) or read_step(self._run / step_name(number))  # or deleted since it was listed
        if step.manifest is None or not step.whole:
            raise StepError(f"{step.path} is not whole ({step.fault}); only whole steps are made small")
        path, old, has_delta = self._run / step.path.name, step.manifest, any(rule.codec == XOR for rule in self._rules)
        source = Source(path, old, self._base(number, old) if has_delta else None)
        tensors = [(section, name) for section, named in old.tensors.items() for name in named]
        codecs = {codec for tensor in tensors if (codec := source.codec_of(self._codec, *tensor)) is not None}
        if why := self._why_not(number, codecs):
            return Left(step=number, why=why)
        if any(True for _ in old.encoded()) and not gets_smaller(source, self._codec):
            return Left(step=number, why="it is small already")
        if (fault := next(verify(step), None)) is not None:
            raise StepError(f"{path} is left as it is: {fault}")
        work = self._run / aside_name("small", number, secrets.token_hex(4))
        try:
            small = write_small(source, work, self._codec, self._progress)
            if small is None:
                return Left(step=number, why="no tensor of it gets smaller")
            self._on_phase("encode")
            compared = tuple(compare_small(source, work, small, self._progress))
            self._on_phase("verify")
            former = swap(path, old, work, small, number == self._newest)
            self._on_phase("swap")
            remove_aside(former)
        finally:
            if posix.exists_directory(work):
                posix.remove_tree(work)
        self._on_phase("clear")
        shrunk = Shrunk(step=number, before=step.num_bytes, after=_num_bytes(small), base=small.base, tensors=compared)
        told = {"before": shrunk.before, "after": shrunk.after, "base": shrunk.base, "codecs": sorted(codecs)}
        append_event(self._run, {"event": "shrink", "step": number, "outcome": "shrunk", **told})
        return shrunk

    def _codec(self, section: str, name: str) -> str | None:
        return next((rule.codec for rule in self._rules if rule.fits(section, name)), None)

    def _why_not(self, number: int, codecs: Collection[str]) -> str | None:
        if not codecs:
            return "no tensor of it is to get a codec, or all have one"
        on_it = [n for n, step in self._steps.items() if step.manifest is not None and step.manifest.base == number]
        if INT8 in codecs and on_it:
            return f"step {on_it[0]} is stored against it, and int8 would change it"
        if (number == self._newest or XOR in codecs) and is_in_use(self._run):
            is_newest = "its newest step is left alone" if number == self._newest else ""
            return f"the run is in use: {is_newest or 'it may delete what a step is stored against'}"
        return None

    def _base(self, number: int, manifest: Manifest) -> tuple[Path, Manifest] | None:
        """Return the step to store against: the one asked for, or the newest before; None where the chain is too long."""
        if manifest.base is not None and self._parent not in (None, manifest.base):
            raise StepError(f"step {number} is stored against step {manifest.base} already; leave out --parent")
        before = [n for n, step in self._steps.items() if n < number and step.whole]
        asked = self._parent if manifest.base is None else manifest.base
        wanted = max(before, default=None) if asked is None else asked
        if wanted is None:
            return None
        if wanted not in before:
            there = ", ".join(map(str, before)) or "none"
            raise StepError(f"step {wanted} is no whole step before step {number}; there are: {there}")
        if self._links(wanted) >= MAX_CHAIN:
            if asked is None:
                return None
            raise StepError(f"step {wanted} is at the end of a chain of {MAX_CHAIN} steps; give an earlier --parent")
        found = self._steps[wanted]
        assert found.manifest is not None, "it is whole"
        return self._run / found.path.name, found.manifest

    def _links(self, number: int) -> int:
        """Count the steps that a step is stored against, one after the other."""
        found = self._steps[number].manifest
        return 0 if found is None or found.base is None else 1 + self._links(found.base)


def _num_bytes(manifest: Manifest) -> int:
    return sum(record.num_bytes for record in manifest.files.values())
