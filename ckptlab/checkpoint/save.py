"""Save one step: all of it or nothing, from every rank at once, into plain safetensors files.

1. plan      describe own tensors; agree that all ranks mean the same step
2. reserve   the coordinator makes a temporary directory and reserves the space
3. write     every rank writes and sums its own boxes; of equal replicas each writes its share of the blocks
4. sync      every rank makes durable what it wrote
5. agree     outcomes and sums go to the coordinator; one failure is every rank's
6. manifest  the coordinator checks that every byte of every block was written once, and writes the manifest
7. commit    the coordinator renames the directory: from here on the step exists
8. retire    the coordinator deletes the steps that retention lets go
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckptlab.checkpoint import step_files
from ckptlab.checkpoint.agreement import details, propose, refuse, subjects_of_dispute
from ckptlab.checkpoint.collectives import COORDINATOR, Group, Outcome, RanksDisagree, attempt
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.phases import PHASES, PhaseClock
from ckptlab.checkpoint.plan import Layout, Tensors, describe_all, lay_out_step
from ckptlab.checkpoint.writer import StepWriter, merge_sums
from ckptlab.errors import ReplicaMismatch, SaveError, StepError
from ckptlab.format.checksums import BLOCK_BYTES, FileSums
from ckptlab.format.names import step_name
from ckptlab.steps.events import append_event
from ckptlab.steps.retention import retire
from ckptlab.storage import posix

logger = logging.getLogger("ckptlab")


def save(
    run: Path,
    step: int,
    contents: Contents,
    *,
    keep_last: int | None = None,
    group: Group | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> Path:
    """Save `contents` as a step of `run` and return its directory. Every rank calls it, with the same `run` and `step`.

    It returns on every rank when the step is committed and durable. It changes nothing but files.

    Args:
        run: the directory of the run, on storage that all ranks share; made when it is not there.
        step: the number of optimizer steps done.
        contents: what to save.
        keep_last: how many whole steps to keep, this one included; None keeps all.
        group: the ranks; None makes a group of all ranks for this call.
        on_phase: called on every rank after each of `PHASES`; must not raise.

    Raises:
        SaveError: on every rank that is left, with the cause from the rank that failed, or with the ranks that are lost.
            `committed` is False, or None where it is not known.
        ReplicaMismatch: copies of a tensor that should be equal are not.
    """
    with Group.lent(group) as ranks:
        saving = _Saving(Path(run), step, contents, keep_last, ranks)
        clock = PhaseClock(on_phase)
        try:
            for phase in PHASES:
                getattr(saving, phase)()
                clock.done(phase)
        except RanksDisagree as error:
            raise saving.failed(error, clock) from error
        finally:
            saving.close()
        saving.succeeded(clock)
    return saving.path


class _Saving:
    """One save on one rank; each phase is the method of its name.

    What goes wrong on this rank alone is kept in `_outcome` until the next exchange, which every rank reaches.
    """

    def __init__(self, run: Path, step: int, contents: Contents, keep_last: int | None, group: Group) -> None:
        self.path = run / step_name(step)
        self._run, self._step, self._contents, self._keep_last, self._group = run, step, contents, keep_last, group
        self._tensors: Tensors = {}
        self._layout: Layout = {}
        self._temporary = run
        self._writer = StepWriter(run, BLOCK_BYTES)
        self._sums: dict[str, FileSums] = {}
        self._outcome = Outcome()

    def plan(self) -> None:
        subjects = self._group.agree(attempt(self._propose), subjects_of_dispute)
        if subjects:
            told = attempt(lambda: details(subjects, self._step, self._tensors, self._contents))
            self._group.agree(told, lambda everybody: refuse(subjects, everybody))

    def reserve(self) -> None:
        if self._group.is_coordinator:
            self._outcome = attempt(lambda: step_files.make_temporary(self._run, self._step, self._layout).name)
        self._temporary = self._run / self._group.tell(self._outcome)
        self._writer = StepWriter(self._temporary, BLOCK_BYTES)

    def write(self) -> None:
        self._outcome = attempt(self._write)

    def sync(self) -> None:
        if self._outcome.error is None:
            self._outcome = attempt(self._sync)

    def agree(self) -> None:
        self._group.agree(self._outcome, self._collect)

    def manifest(self) -> None:
        if self._group.is_coordinator:
            self._outcome = attempt(self._write_manifest)

    def commit(self) -> None:
        if self._group.is_coordinator and self._outcome.error is None:
            self._outcome = attempt(lambda: step_files.commit(self._temporary, self.path))
        self._group.tell(self._outcome)

    def retire(self) -> None:
        if self._group.is_coordinator and self._keep_last is not None:
            keep_last = self._keep_last
            _only_warn(f"{self._run}: old steps were not deleted", lambda: retire(self._run, keep_last))

    def close(self) -> None:
        """Close what is open, whatever happened."""
        self._writer.close()

    def succeeded(self, clock: PhaseClock) -> None:
        """Write the event of a committed step."""
        if self._group.is_coordinator:
            self._event(
                outcome="committed",
                ranks=self._group.world_size,
                bytes=sum(sums.file_bytes for sums in self._sums.values()),
                seconds=clock.seconds,
                stall=round(sum(clock.seconds.values()), 6),
            )

    def failed(self, error: RanksDisagree, clock: PhaseClock) -> SaveError:
        """Return this rank's error, after the coordinator has removed what was not committed."""
        phase = PHASES[len(clock.seconds)]
        unknown = phase in ("agree", "commit") and COORDINATOR in error.lost
        committed = None if unknown or (phase == "commit" and posix.exists_directory(self.path)) else False
        if self._group.is_coordinator:
            if posix.exists_directory(self._temporary) and self._temporary != self._run:
                _only_warn(f"{self._temporary} was not removed", lambda: posix.remove_tree(self._temporary))
            self._event(outcome="failed", error=str(error))
        kind = ReplicaMismatch if error.kind == ReplicaMismatch.__name__ else SaveError
        what = "may or may not be saved" if committed is None else "is not saved"
        return kind(f"step {self._step} {what} in {self._run}: {error}", committed=committed, lost=error.lost)

    def _propose(self) -> dict[str, Any]:
        self._tensors = describe_all(self._contents, self._group.rank, self._group.world_size)
        self._layout = lay_out_step(self._tensors)
        return propose(self._step, self._tensors, self._contents)

    def _write(self) -> None:
        rank = self._group.rank
        if not posix.exists_directory(self._temporary):
            raise StepError(
                f"{self._temporary} is not there, though rank {COORDINATOR} made it: all ranks must share the storage"
            )
        if self._group.is_coordinator:
            step_files.write_common(self._writer, self._tensors, self._layout, self._contents)
        step_files.write_own(self._writer, self._contents, rank)
        step_files.write_shared(self._writer, self._tensors, self._layout, rank)

    def _sync(self) -> dict[str, Any]:
        self._writer.sync()
        return self._writer.sums()

    def _collect(self, everybody: list[dict[str, Any]]) -> None:
        self._sums = merge_sums(everybody, BLOCK_BYTES)

    def _write_manifest(self) -> None:
        world_size = self._group.world_size
        step_files.write_manifest(
            self._temporary, self._step, self._tensors, self._layout, self._contents, self._sums, world_size
        )

    def _event(self, **members: object) -> None:
        if posix.exists_directory(self._run):
            event = {"event": "save", "step": self._step, **members}
            _only_warn(f"{self._run}: the event was not written", lambda: append_event(self._run, event))


def _only_warn(what: str, work: Callable[[], object]) -> None:
    """Do what the step does not depend on: it is committed, or failed for a better reason."""
    outcome = attempt(work)
    if outcome.error is not None:
        logger.warning("%s: %s", what, outcome.error)
