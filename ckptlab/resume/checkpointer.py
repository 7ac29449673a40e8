"""A run's checkpoints: resume from the newest whole step, save when it is time, keep the last few.

Every rank makes a `Checkpointer` on the same directory and calls its methods together. The coordinator holds the run's lock
from the first call to `close`, so that two runs cannot save into one directory.
"""

import logging
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from ckptlab.checkpoint.collectives import Group, Outcome, RanksDisagree, attempt, attempt_or_warn
from ckptlab.checkpoint.load import Loaded, load
from ckptlab.checkpoint.save import save
from ckptlab.errors import CorruptError, LoadError, ResumeError, SaveError, StepError, UsageError
from ckptlab.format.files import MAX_FILE_BYTES
from ckptlab.format.names import step_name
from ckptlab.resume.train_state import TrainState
from ckptlab.steps.events import append_event
from ckptlab.steps.housekeeping import clean_temporary, set_aside
from ckptlab.steps.retention import check_rule
from ckptlab.steps.steps import list_steps
from ckptlab.storage import RunLock, posix

logger = logging.getLogger("ckptlab")


class Checkpointer:
    """Saves and resumes the run in one directory. A context manager."""

    def __init__(
        self,
        run: str | Path,
        *,
        every: int | None = None,
        keep_last: int | None = 3,
        keep_every: int | None = None,
        max_file_bytes: int = MAX_FILE_BYTES,
        on_save_error: Literal["raise", "warn"] = "raise",
    ) -> None:
        """Name the run; nothing is opened, nothing communicated yet.

        Args:
            run: the run's directory, on storage that all ranks share; made when it is not there.
            every: `save_if_due` saves at multiples of so many steps; None: never.
            keep_last: how many whole steps to keep; None keeps all.
            keep_every: steps that are multiples of it are kept for good.
            max_file_bytes: of tensors in one file; a larger tensor stands alone.
            on_save_error: with "warn", a save that fails while all ranks are there, as on a full disk, is logged and the run
                goes on; `save` returns None then.
        """
        check_rule(keep_last, keep_every)
        if min(every or 1, max_file_bytes) < 1 or every == 0:
            raise UsageError(f"every={every}, max_file_bytes={max_file_bytes}: at least 1; every may be None")
        if on_save_error not in ("raise", "warn"):
            raise UsageError(f"on_save_error={on_save_error!r}: 'raise' or 'warn'")
        self.run, self.every, self.on_save_error = Path(run), every, on_save_error
        self.keep_last, self.keep_every, self.max_file_bytes = keep_last, keep_every, max_file_bytes
        self._group: Group | None = None
        self._lock: RunLock | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give back the group and the lock. Every rank calls it."""
        if self._group is not None:
            self._group.close()
            self._group = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def save_if_due(self, state: TrainState) -> Path | None:
        """Save if it is time, and return the step's directory if so. Every rank calls it, at the end of the loop's body."""
        return self.save(state) if self.every is not None and state.step % self.every == 0 else None

    def save(self, state: TrainState) -> Path | None:
        """Save now; return the step's directory. Every rank calls it; see `ckptlab.checkpoint.save` for what it raises."""
        try:
            return self._save(state)
        except SaveError as error:
            if self.on_save_error == "raise" or error.lost:
                raise
            logger.warning("%s", error)
            return None

    def _save(self, state: TrainState) -> Path:
        group = self._open()
        made = attempt(self._lock.check if self._lock is not None else lambda: None).then(state.contents)
        try:
            group.agree(Outcome(error=made.error))
        except RanksDisagree as error:
            raise SaveError(f"step {state.step} is not saved in {self.run}: {error}", lost=error.lost) from error
        return save(
            self.run,
            state.step,
            made.value,
            keep_last=self.keep_last,
            keep_every=self.keep_every,
            max_file_bytes=self.max_file_bytes,
            group=group,
        )

    def resume(self, state: TrainState) -> int:
        """Load the newest whole step into `state` and return its number; 0 where the run has no step yet. Every rank calls it.

        A step that turns out to be damaged is passed over for the one before. Steps after the one that is taken are renamed
        to `.bad-...`, so that training can save them again. What is not exact any more is logged as a warning.

        Raises:
            ResumeError: the run has steps, and none is whole; or the run cannot go on from the step.
            LoadError: the step does not fit the model. `state_changed` tells whether a damaged step was partly loaded before.
        """
        group = self._open()
        refused: dict[int, str] = {}
        changed = False
        while True:
            step = self._choose(group, refused, changed)
            if step is None:
                return 0
            try:
                loaded = load(self.run / step_name(step), state.wanted, verify_first=False, group=group)
            except CorruptError as error:
                refused[step], changed = str(error), changed or error.state_changed
                continue
            except LoadError as error:
                error.state_changed = error.state_changed or changed
                raise
            self._take(group, state, loaded, refused)
            return step

    def _choose(self, group: Group, refused: dict[int, str], changed: bool) -> int | None:
        """Return the newest whole step that was not refused, on every rank; None for a run without any step."""
        try:
            step: int | None = group.from_coordinator(lambda: self._newest(refused))
        except RanksDisagree as error:
            raise ResumeError(str(error), state_changed=changed) from error
        return step

    def _newest(self, refused: dict[int, str]) -> int | None:
        steps = list_steps(self.run)
        refused.update({step.number: step.fault for step in steps if step.fault is not None})
        whole = [step.number for step in steps if step.number not in refused]
        if steps and not whole:
            reasons = "; ".join(f"step {number}: {why}" for number, why in sorted(refused.items(), reverse=True)[:3])
            raise ResumeError(f"no step of {self.run} can be loaded ({reasons}); move the directory away to start afresh")
        return max(whole, default=None)

    def _take(self, group: Group, state: TrainState, loaded: Loaded, refused: dict[int, str]) -> None:
        """Make the loaded step the state of the run, on all ranks or none of them goes on."""
        step = loaded.manifest.step
        try:
            group.agree(attempt(lambda: state.accept(loaded)))
            group.from_coordinator(lambda: self._set_later_aside(step))
        except RanksDisagree as error:
            raise ResumeError(f"step {step} of {self.run} was loaded but not taken: {error}", state_changed=True) from error
        if group.is_coordinator:
            self._write_event(loaded, refused, group)
            for number, why in sorted(refused.items()):
                logger.warning("%s: step %d was passed over: %s", self.run, number, why)
            for sentence in state.promises_lost(loaded):
                logger.warning("%s: resumed from step %d: %s", self.run, step, sentence)

    def _set_later_aside(self, step: int) -> None:
        for later in list_steps(self.run):
            if later.number > step:
                logger.warning("%s is set aside as %s", later.path, set_aside(later.path, "bad").name)

    def _write_event(self, loaded: Loaded, refused: dict[int, str], group: Group) -> None:
        event = {
            "event": "load",
            "step": loaded.manifest.step,
            "outcome": "loaded",
            "ranks": group.world_size,
            "bytes": sum(record.num_bytes for record in loaded.manifest.files.values()),
            "refused": [{"step": number, "why": why} for number, why in sorted(refused.items())],
        }
        attempt_or_warn(f"{self.run}: no event was written", lambda: append_event(self.run, event))

    def _open(self) -> Group:
        """Take the run's lock and remove what a killed save left behind, once. Every rank calls it."""
        if self._group is None:
            try:
                self._group = Group.of_world()
                self._group.from_coordinator(self._take_lock)
            except RanksDisagree as error:
                self.close()
                raise StepError(str(error)) from error
        return self._group

    def _take_lock(self) -> None:
        posix.make_directory_durably(self.run)
        self._lock = RunLock.take(self.run)
        clean_temporary(self.run)
