"""A run's checkpoints: resume from the newest whole step, save when it is time, keep the last few.

Every rank makes a `Checkpointer` on the same directory and calls its methods together. The coordinator holds the run's lock
from the first call to `close`, so that two runs cannot save into one directory.

With `background=` a save returns when the state is copied, and a thread on every rank writes the copy. At most one is in
flight. What it came to shows at the next call, `wait` or `close`, on every rank alike.

With `grace_seconds=` a SIGTERM or SIGUSR1 to any rank ends the run on all of them, after one more save: see `save_if_due`.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from ckptlab.checkpoint.collectives import Group, Outcome, RanksDisagree, attempt, attempt_or_warn
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.plan import FILES, Files
from ckptlab.checkpoint.save import save
from ckptlab.errors import SaveError, StepError, UsageError
from ckptlab.format.files import MAX_FILE_BYTES
from ckptlab.format.names import step_name
from ckptlab.resume.background import BackgroundSaver
from ckptlab.resume.choice import OnNodes, Shared, Source
from ckptlab.resume.gate import Gate, ask, first_refusal
from ckptlab.resume.preemption import Preemption, Signal
from ckptlab.resume.restore import restore
from ckptlab.resume.schedule import Schedule
from ckptlab.resume.settings import alike, check_alike, check_apart, checked
from ckptlab.resume.stop import stop
from ckptlab.resume.train_state import TrainState
from ckptlab.resume.writing import Write, laps, once, write_all
from ckptlab.steps.events import OnEvent, WriteEvent, append_event
from ckptlab.steps.housekeeping import clean_temporary
from ckptlab.steps.preempted import remove_mark
from ckptlab.steps.retention import check_rule
from ckptlab.steps.run_id import run_id_of
from ckptlab.storage import RunLock, on_disk, posix
from ckptlab.tiers import NodeTier, ObjectStore
from ckptlab.tiers.drain import Drains
from ckptlab.tiers.nodes import claim_on_nodes

logger = logging.getLogger("ckptlab")


class Checkpointer:
    """Saves and resumes the run in one directory. A context manager."""

    def __init__(
        self,
        run: str | Path,
        *,
        every: int | Literal["auto"] | None = None,
        mtbf_hours: float | None = None,
        keep_last: int | None = 3,
        keep_every: int | None = None,
        max_file_bytes: int = MAX_FILE_BYTES,
        files: Files = "by_tensor",
        on_save_error: Literal["raise", "warn"] = "raise",
        background: Literal["wait", "skip"] | None = None,
        gate: Gate | None = None,
        on_event: OnEvent | None = None,
        tiers: Sequence[ObjectStore | NodeTier] = (),
        grace_seconds: float | None = None,
        allow_inexact: bool = False,
    ) -> None:
        """Name the run; nothing is opened, nothing communicated yet.

        Args:
            run: the run's directory, on storage that all ranks share; made when it is not there.
            every: `save_if_due` saves at multiples of so many steps; None: never; "auto": as often as loses least, by what
                saves have cost in this run; see `ckptlab.resume.interval`. The event "interval" says what was decided.
            mtbf_hours: for "auto", the mean time between failures of the whole job.
            keep_last: how many whole steps to keep; None keeps all.
            keep_every: steps that are multiples of it are kept for good.
            max_file_bytes: of tensors in one file; a larger tensor stands alone.
            files: "by_tensor": plain files of whole tensors; "by_rank": one file a rank; see `ckptlab.checkpoint.save`.
            on_save_error: with "warn", a save that fails while all ranks are there, as on a full disk, or that a gate refuses,
                is logged and the run goes on; `save` returns None then, and of a save in the background `wait`.
            background: None: a save returns when the step is committed. Else it returns when the state is copied, into a
                buffer of the size of this rank's state that is kept, and the step is written meanwhile. The next save waits
                for it ("wait"), or `save_if_due` leaves a step out that is due while one is being written ("skip").
            gate: asked on every rank before a save, with the state and the run's events so far; returns why the step must not
                be saved, or None, and changes nothing. If one rank's refuses, or raises, the save fails on all (see
                `on_save_error`), and the steps that there are stay. `ckptlab.resume.finite` is a gate.
            on_event: called on the coordinator with every event as it stands in `events.jsonl`; when it raises, that is logged.
                Of saves in the background and pushes it is called in the threads that write, which wait for it. It must not
                call the Checkpointer: the other ranks would not.
            tiers: further places; `resume` takes the newest step of all, from the nearest that has it. Into the memory and onto
                the disks of the nodes (`Memory`, `Local`) `save_if_due` saves as it does into the directory, each tier at its
                own steps, before the directory. Into an `ObjectStore` rank 0 pushes committed steps of the directory behind the
                training; what goes wrong there is logged and stops nothing.
            grace_seconds: how long ranks may run on after SIGTERM or SIGUSR1. With a number these are handled from the first
                call to `close`, which then come in the main thread; a save that takes too long for it is told beforehand.
            allow_inexact: resume also from a step that `ckptlab shrink` made small as int8; the values are near what they were.
        """
        self._alike = alike(locals())
        check_rule(keep_last, keep_every)
        if max_file_bytes < 1:
            raise UsageError(f"max_file_bytes={max_file_bytes}: at least 1")
        if files not in FILES:
            raise UsageError(f"files={files!r}: {' or '.join(map(repr, FILES))}")
        if on_save_error not in ("raise", "warn"):
            raise UsageError(f"on_save_error={on_save_error!r}: 'raise' or 'warn'")
        if background not in (None, "wait", "skip"):
            raise UsageError(f"background={background!r}: 'wait', 'skip' or None")
        if gate is not None and not callable(gate):
            raise UsageError(f"gate={gate!r}: a function of the state and the events, such as ckptlab.resume.finite, or None")
        self.run, self.on_save_error, self._schedule = on_disk(run), on_save_error, Schedule(every, mtbf_hours)
        self.keep_last, self.keep_every, self.max_file_bytes = keep_last, keep_every, max_file_bytes
        self.files, self.background, self.gate, self.on_event, self.tiers = files, background, gate, on_event, checked(tiers)
        check_apart(self.run, self.tiers)
        self.allow_inexact = allow_inexact
        self._node_tiers = [tier for tier in self.tiers if isinstance(tier, NodeTier)]
        self._stores = [tier for tier in self.tiers if isinstance(tier, ObjectStore)]
        self._drains = Drains(self.run, (), self._write_event)  # rank 0 has them from the first call on
        self._preemption = Preemption(grace_seconds)
        self._write_seconds = 0.0  # of the last save into the directory that has ended
        self._group: Group | None = None
        self._saver: BackgroundSaver | None = None
        self._lock: RunLock | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is not None:
                self._drains.stop()  # who starts the ranks again must not wait for a network
            self.close()
        except SaveError as failure:
            if error is None:
                raise
            logger.warning("%s", failure)  # the caller has to know what the body raised

    def close(self) -> None:
        """Wait for the save in flight, then give back groups and lock, also when it failed. Every rank calls it.

        Rank 0 waits for what is on its way into `tiers` too; where the block raised, and at the end of a program that does not
        call this, it is broken off, and the next `resume` sends the rest.

        Raises:
            SaveError: the save in flight failed, unless that is only logged.
        """
        saver = self._saver
        ended = Outcome() if saver is None else attempt(lambda: self._waited_for(saver, saver.close))
        self._saver = None
        self._preemption.close()
        if self._group is not None:
            self._group.close()
            self._group = None
        self._drains.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self._or_warn(ended.get)

    def _close_now(self) -> None:
        """Close without waiting for a network: a signal leaves little time."""
        self._drains.stop()
        self.close()

    def save_if_due(self, state: TrainState) -> Path | None:
        """Save if it is time; return None if it is not. Every rank calls it, at the end of the loop's body.

        Returns what `save` does; None too where `background="skip"` leaves the step out.

        Raises:
            Preempted: with `grace_seconds`, when a rank got a signal before the last call: the step is saved in the directory
                (if it could be, with `on_save_error="warn"`), all closed, and `RUN/PREEMPTED` says so until the run is opened
                again. Let it end the process: with exit code 75, or 0 under torch's elastic agent (torchrun), which would start
                a failed rank again.
            SaveError: the save failed, or a rank is lost.
        """
        if (why := self._signal(state.step)) is not None:
            stop(
                self.run,
                state.step,
                why,
                self._open(),
                wait=self.wait,
                save=partial(self.save, state),
                close=self._close_now,
                write_event=self._write_event,
            )
        tiers, to_run = [tier for tier in self._node_tiers if tier.is_due(state.step)], self._schedule.is_due(state.step)
        if not tiers and not to_run:
            return None
        path = self._save_or_warn(state, tiers, to_run, may_skip=self.background == "skip")
        return path if to_run else None

    def poll(self) -> bool:
        """Tell whether the run is to stop, in work between two steps that takes long. Every rank calls it equally often.

            for batch in evaluation_loader:
                if checkpointer.poll():
                    break

        When it is True, leave what you are in, put back what you changed for it, such as averaged weights, and come to
        `save_if_due`, which saves at once. So `poll` does not save. Always False without `grace_seconds`.

        Raises:
            SaveError: a rank is lost.
        """
        return self._signal() is not None

    def save(self, state: TrainState) -> Path | None:
        """Save now; return the step's directory. Every rank calls it; see `ckptlab.checkpoint.save` for what it raises.

        In the background it is the directory that there will be when the step is committed; `wait` tells. An earlier save that
        is in flight is waited for, and its `SaveError` raised in place of this save.
        """
        return self._save_or_warn(state, [], to_run=True, may_skip=False)

    def wait(self) -> Path | None:
        """Wait for the save in flight and return its step's directory; None if there is none. Every rank calls it.

        Raises:
            SaveError: it failed, unless that is only logged.
        """
        saver, group = self._saver, self._group
        if saver is None or group is None:
            return None
        return self._or_warn(lambda: self._waited_for(saver, lambda: saver.finish(group)))

    def _signal(self, *step: int) -> Signal | None:
        if self._preemption.grace_seconds is not None:
            self._open()
        return self._preemption.agreed(*step)

    def _waited_for(self, saver: BackgroundSaver, finish: Callable[[], Path | None]) -> Path | None:
        """Finish what is in flight, and write down how long training waited for that."""
        step, since = saver.step, time.monotonic()
        try:
            with self._preemption.at_work():
                return finish()
        finally:
            if step is not None and self._lock is not None:
                self._write_event({"event": "wait", "step": step, "stall": round(time.monotonic() - since, 6)})

    def _or_warn(self, work: Callable[[], Path | None]) -> Path | None:
        """Do `work`; of a `SaveError` that does not have to end the run, log it and return None."""
        try:
            with self._preemption.at_work():
                return work()
        except SaveError as error:
            if self.on_save_error == "raise" or error.lost:
                raise
            logger.warning("%s", error)
            return None

    def _save_or_warn(self, state: TrainState, tiers: Sequence[NodeTier], to_run: bool, may_skip: bool) -> Path | None:
        since, group = time.monotonic(), self._open()
        if (saver := self._saver) is not None:
            if may_skip and saver.is_busy(group):
                self._not_saved(state, group, since, to_run, outcome="skipped")
                return None
            try:
                self._or_warn(lambda: saver.finish(group))
            except SaveError as error:
                self._not_saved(state, group, since, to_run, outcome="failed", error=f"the save before: {error}")
                raise
        return self._or_warn(lambda: self._save(state, group, since, tiers, to_run))

    def _save(self, state: TrainState, group: Group, since: float, tiers: Sequence[NodeTier], to_run: bool) -> Path:
        """Save, or copy and begin to save; training has been waiting `since`, on `time.monotonic`."""
        saver, step, contents = self._saver, state.step, self._agreed(state, group, since, to_run)
        writes: list[Write] = [partial(tier.save, step, contents) for tier in tiers]
        if to_run:
            writes.append(partial(self._write, step, contents, self._drains))
        write = partial(write_all, writes, self._write_event)
        if saver is None:
            path = write(laps(since), group)
        else:
            saver.start(step, partial(write, once(time.monotonic() - since)))
            path = self.run / step_name(step)
        if to_run:
            written = 0.0 if saver is None else self._write_seconds
            self._schedule.saved(step, since, written)
            self._preemption.measured(self.run, time.monotonic() - since, written)
        return path

    def _write(self, step: int, contents: Contents, drains: Drains, group: Group, write_event: WriteEvent) -> Path:
        """Save into the run's directory, and have it pushed from there."""
        since = time.monotonic()
        path = save(
            self.run,
            step,
            contents,
            keep_last=self.keep_last,
            keep_every=self.keep_every,
            max_file_bytes=self.max_file_bytes,
            files=self.files,
            in_use=drains.in_use,
            group=group,
            write_event=write_event,
        )
        self._write_seconds = time.monotonic() - since
        drains.committed(step)
        return path

    def _agreed(self, state: TrainState, group: Group, since: float, to_run: bool) -> Contents:
        """Return what is to be saved, or its copy, when it is there on all ranks and no rank's gate refuses it."""
        saver, check = self._saver, self._lock.check if self._lock is not None else lambda: None
        made = attempt(check).then(state.contents)
        refusal = None if self.gate is None else ask(self.gate, state, self.run)  # also if that failed: a gate may communicate
        if saver is not None and refusal is None:
            made = made.then(partial(saver.copy, made.value))
        decide = partial(self._schedule.decide, state.step, since) if to_run else lambda: None
        try:
            refused, decision = group.agree(Outcome(refusal, made.error), lambda told: [first_refusal(told), decide()])
        except RanksDisagree as error:
            self._not_saved(state, group, since, to_run, outcome="failed", error=str(error))
            raise SaveError(f"step {state.step} is not saved in {self.run}: {error}", lost=error.lost) from error
        self._schedule.follow(state.step, decision)
        if decision is not None and group.is_coordinator:
            self._write_event({"event": "interval", "step": state.step, **decision})
        if refused is not None:
            self._not_saved(state, group, since, to_run, outcome="refused", why=refused)
            raise SaveError(
                f"step {state.step} is not saved in {self.run}: the gate refused it, {refused}; what was saved before is "
                f"untouched: resume from the newest whole step, with a smaller learning rate for example"
            )
        contents: Contents = made.value
        return contents

    def _not_saved(self, state: TrainState, group: Group, since: float, to_run: bool, **members: object) -> None:
        if group.is_coordinator:
            stall, where = round(time.monotonic() - since, 6), {} if to_run else {"tier": "nodes"}
            self._write_event({"event": "save", "step": state.step, **where, **members, "stall": stall})

    def resume(self, state: TrainState) -> int:
        """Load the newest whole step into `state` and return its number; 0 where the run has no step yet. Every rank calls it.

        It is taken from the nearest place that has it: the nodes, the run's directory, a store. One that turns out to be
        damaged is passed over for the same one farther away, or the one before. Steps after the one that is taken are renamed
        to `.bad-...`, and deleted on the nodes, so that training can save them again. What is not exact any more is logged as a
        warning. A save in flight is waited for first.

        Raises:
            ResumeError: the run has steps, and none is whole; or the run cannot go on from the step; or the directory has none,
                and a store does not answer; or what the nodes have is not known.
            LoadError: the step does not fit the model. `state_changed` tells whether a damaged step was partly loaded before.
            SaveError: the save in flight failed; nothing was loaded.
        """
        self.wait()
        group = self._open()
        self._drains.stop()
        self._drains.close()
        on_nodes, in_stores = map(OnNodes, self._node_tiers), (Shared(tier.run) for tier in self._stores)
        sources: list[Source] = [*on_nodes, Shared(self.run), *in_stores]
        step, later = restore(self.run, sources, state, group, self._write_event, self.allow_inexact)
        attempt_or_warn(f"{self.run}: nothing unsent was looked for", lambda: self._drains.start(later))
        self._schedule.start(step)
        return step

    def _write_event(self, event: Mapping[str, object]) -> None:
        append_event(self.run, event, self.on_event)

    def _open(self) -> Group:
        """Take the run's lock and remove what a killed save left behind, once. Every rank calls it."""
        if self._group is None:
            try:
                self._group = Group.of_world()
                told = attempt(self._preemption.check).then(lambda: self._alike)
                run_id = self._group.agree(told, self._take_lock)
                for tier in self._node_tiers:
                    claim_on_nodes(tier.directory, run_id, self._group, tier.partner)
                self._preemption.open()
                self._saver = BackgroundSaver() if self.background is not None else None
            except RanksDisagree as error:
                self.close()
                kind = UsageError if error.kind == UsageError.__name__ else StepError
                raise kind(str(error)) from error
        return self._group

    def _take_lock(self, settings: list[dict[str, str]]) -> str:
        check_alike(settings)
        posix.make_directory_durably(self.run)
        self._lock = RunLock.take(self.run)
        self._drains = Drains(self.run, self._stores, self._write_event)
        clean_temporary(self.run)
        remove_mark(self.run)
        return run_id_of(self.run) if self._node_tiers else ""  # a full disk keeps no run from its steps
