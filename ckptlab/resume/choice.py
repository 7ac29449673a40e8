"""Which step of a run is taken: the newest, and of equal numbers the nearest. The coordinator decides; nothing is loaded."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from ckptlab.checkpoint.collectives import Group, Outcome
from ckptlab.checkpoint.load import Wanted
from ckptlab.errors import ResumeError
from ckptlab.format.names import step_name
from ckptlab.steps.housekeeping import marked_rollback, rolled_back, set_aside
from ckptlab.steps.steps import list_steps, newest_step, read_step, step_numbers
from ckptlab.storage import ObjectPath, Place
from ckptlab.tiers.node import NodeTier

logger = logging.getLogger("ckptlab")


class Found(NamedTuple):
    """Whether a step is whole, and if not, why; where nothing was ever committed there is no why."""

    whole: bool
    why: str | None


class Source(Protocol):
    """Where steps of a run may stand; its `str` is for messages."""

    @property
    def need_whole(self) -> bool:
        """Whether every rank has to see all files of a step, as for `load`."""

    def numbers(self, group: Group) -> Sequence[int]:
        """List the steps that may be here, whole or not. Every rank calls it, and the coordinator's answer counts."""

    def read(self, number: int) -> Found:
        """Tell whether a step is whole (coordinator)."""

    def prepare(self, number: int, wanted: Wanted, group: Group) -> Place:
        """Return the directory from which this rank loads what is wanted of the step. Every rank calls it.

        Raises:
            CorruptError: the step cannot be had here.
        """

    def leave(self, step: int, group: Group) -> None:
        """Have no later step than the one that the run goes on from. Every rank calls it."""


@dataclass(frozen=True, slots=True)
class Shared:
    """One place that all ranks see: the run's directory, or a store."""

    run: Place
    need_whole: ClassVar[bool] = True

    def __str__(self) -> str:
        return str(self.run)

    def numbers(self, group: Group) -> Sequence[int]:
        """List the steps."""
        return step_numbers(self.run) if group.is_coordinator else ()

    def read(self, number: int) -> Found:
        """Read what tells whether a step is whole."""
        step = read_step(self.run / step_name(number))
        never = step.torn and isinstance(step.path, ObjectPath)  # torn is none on disk either, where it has another name
        return Found(step.whole, None if never else step.fault)

    def prepare(self, number: int, wanted: Wanted, group: Group) -> Place:
        """Give the step where it is."""
        return self.run / step_name(number)

    def leave(self, step: int, group: Group) -> None:
        """Set later steps aside on a disk; in a store a drain does it, before it pushes."""
        if isinstance(self.run, Path):
            group.from_coordinator(partial(_set_later_aside, self.run, step))


def _set_later_aside(run: Path, step: int) -> None:
    for later in list_steps(run):
        if later.number > step:
            logger.warning("%s is set aside as %s", later.path, set_aside(later.path, "bad").name)


class OnNodes:
    """The memory or the disks of the nodes."""

    need_whole: ClassVar[bool] = False

    def __init__(self, tier: NodeTier) -> None:
        self._tier = tier
        self._faults: dict[int, str | None] = {}

    def __str__(self) -> str:
        return str(self._tier.directory)

    def numbers(self, group: Group) -> Sequence[int]:
        """List the steps that any node has something of; a node that cannot tell ends a resume, which would pass over them."""
        self._faults = dict(self._tier.steps(group))
        return list(self._faults)

    def read(self, number: int) -> Found:
        """Tell whether all files of a step are on some node."""
        return Found(self._faults[number] is None, self._faults[number])

    def prepare(self, number: int, wanted: Wanted, group: Group) -> Place:
        """Bring to this node what its ranks want.

        Raises:
            LoadError: the step is good, and there is no room for it; to pass over it would be to delete it.
        """
        return self._tier.prepare(number, group, wanted)

    def leave(self, step: int, group: Group) -> None:
        """Delete later steps: memory is too small to keep them."""
        self._tier.delete_later(step, group)


class Candidate(NamedTuple):
    """A step in the source with this index."""

    number: int
    source: int


class Choice:
    """Gives one candidate after the other. Every rank has one; what it gives counts on the coordinator."""

    def __init__(self, run: Path, sources: Sequence[Source], found: Sequence[Outcome]) -> None:
        """Take what each source has by its own listing; nothing is read yet.

        Args:
            run: the run's directory.
            sources: nearest first; the run's directory is one of them.
            found: by source the numbers, or the error of a source that did not answer.
        """
        self.refused: dict[Candidate, str] = {}
        self.silent = [outcome.error for outcome in found if outcome.error is not None]
        self._run, self._sources = run, sources
        self._found = [Candidate(number, index) for index, outcome in enumerate(found) for number in outcome.value or ()]
        self._left: list[Candidate] | None = None

    def next(self) -> Candidate | None:
        """Return the next candidate that is whole; None for a run without any step (coordinator).

        Raises:
            ResumeError: there are steps, and no further one can be loaded; or it is not known whether there are.
        """
        if self._left is None:
            self._left = self._in_order()
        while self._left:
            candidate = self._left.pop(0)
            found = self._sources[candidate.source].read(candidate.number)
            if found.whole:
                return candidate
            if found.why is not None:
                self.refused[candidate] = found.why
        reasons = [f"step {number}: {why}" for number, why in self.refusals()[::-1][:3]] + [str(e) for e in self.silent]
        if reasons:
            what = "start again when that is known" if self.silent else "move the directory away to start afresh"
            raise ResumeError(f"no step of {self._run} can be loaded ({'; '.join(reasons)}); {what}")
        return None

    def refusals(self) -> list[tuple[int, str]]:
        """List what was passed over and why, by number."""
        return [(candidate.number, why) for candidate, why in sorted(self.refused.items())]

    def later(self, step: int) -> list[int]:
        """List the steps after this one, wherever they are."""
        return sorted({candidate.number for candidate in self._found if candidate.number > step})

    def _in_order(self) -> list[Candidate]:
        """Sort what was found, without what a rollback of the run's directory has undone; elsewhere it may still stand."""
        undone, limit = rolled_back(self._run), marked_rollback(self._run)
        newest = newest_step(self._run) if undone else None
        done = newest.number if newest is not None else 0

        def is_undone(candidate: Candidate) -> bool:
            number = candidate.number
            if isinstance(self._sources[candidate.source], OnNodes):  # there `leave` deletes it
                return limit is not None and number > limit
            return number > done and any(to < number <= step for to, step in undone)

        known = [candidate for candidate in self._found if not is_undone(candidate)]
        return sorted(known, key=lambda candidate: (-candidate.number, candidate.source))
