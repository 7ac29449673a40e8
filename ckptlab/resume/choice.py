"""Which step of a run is taken: the newest, and of equal numbers the nearest. The coordinator decides; nothing is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from ckptlab.checkpoint.collectives import Group, Outcome
from ckptlab.errors import ResumeError
from ckptlab.format.names import step_name
from ckptlab.steps.housekeeping import rolled_back
from ckptlab.steps.steps import Step, newest_step, read_step, step_numbers
from ckptlab.storage import ObjectPath, Place


class Source(Protocol):
    """Where steps of a run may stand; its `str` is for messages."""

    def numbers(self, group: Group) -> Sequence[int]:
        """List the steps that may be here, whole or not. Every rank calls it, and the coordinator's answer counts."""

    def read(self, number: int) -> Step:
        """Tell whether a step is whole (coordinator)."""

    def prepare(self, number: int, group: Group) -> Place:
        """Return the directory from which this rank loads the step. Every rank calls it."""


@dataclass(frozen=True, slots=True)
class Shared:
    """One place that all ranks see: the run's directory, or a store."""

    run: Place

    def __str__(self) -> str:
        return str(self.run)

    def numbers(self, group: Group) -> Sequence[int]:
        """List the steps."""
        return step_numbers(self.run) if group.is_coordinator else ()

    def read(self, number: int) -> Step:
        """Read what tells whether a step is whole."""
        return read_step(self.run / step_name(number))

    def prepare(self, number: int, group: Group) -> Place:
        """Give the step where it is."""
        return self.run / step_name(number)


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
            step = self._sources[candidate.source].read(candidate.number)
            if step.whole:
                return candidate
            if not (step.torn and isinstance(step.path, ObjectPath)):  # torn is none on disk either, where it has another name
                self.refused[candidate] = step.fault or ""
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
        undone = rolled_back(self._run)
        newest = newest_step(self._run) if undone else None
        done = newest.number if newest is not None else 0
        known = [c for c in self._found if c.number <= done or not any(to < c.number <= step for to, step in undone)]
        return sorted(known, key=lambda candidate: (-candidate.number, candidate.source))
