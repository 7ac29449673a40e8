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

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ckptlab.checkpoint import step_files
from ckptlab.checkpoint.agreement import detail, propose, settle, settled, subject_of_dispute
from ckptlab.checkpoint.collectives import (
    COORDINATOR,
    Group,
    Outcome,
    RanksDisagree,
    attempt,
    attempt_or_warn,
    rank_and_world_size,
)
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.phases import PhaseClock
from ckptlab.checkpoint.plan import Files, SavePlan, plan_save
from ckptlab.checkpoint.writer import StepWriter
from ckptlab.errors import ReplicaMismatch, SaveError
from ckptlab.format.checksums import BLOCK_BYTES
from ckptlab.format.files import MAX_FILE_BYTES
from ckptlab.format.manifest import Manifest
from ckptlab.format.names import step_name
from ckptlab.steps.events import WriteEvent, append_event
from ckptlab.steps.retention import check_rule, retire
from ckptlab.storage import posix
from ckptlab.storage.store import on_disk


def save(
    run: Path,
    step: int,
    contents: Contents,
    *,
    keep_last: int | None = None,
    keep_every: int | None = None,
    max_file_bytes: int = MAX_FILE_BYTES,
    files: Files = "by_tensor",
    group: Group | None = None,
    on_phase: Callable[[str], None] | None = None,
    write_event: WriteEvent | None = None,
    in_use: Callable[[], Collection[int]] = tuple,
) -> Path:
    """Save `contents` as a step of `run` and return its directory. Every rank calls it, with the same `run` and `step`.

    It returns on every rank when the step is committed and durable. It changes nothing but files.

    Args:
        run: the directory of the run, on storage that all ranks share; made when it is not there.
        step: the number of optimizer steps done.
        contents: what to save.
        keep_last: how many whole steps to keep, this one included; None keeps all; the same on every rank.
        keep_every: steps that are multiples of it are kept as well; the same on every rank.
        max_file_bytes: tensors of a section fill one file after the other, at most so many bytes each, or one tensor that is
            larger; the same on every rank.
        files: "by_tensor": plain safetensors files of whole tensors, into which all ranks write. "by_rank": each rank writes
            one file of its own, under `pieces/`, of any size; for storage where many ranks cannot write one file. The same
            on every rank.
        group: the ranks; None makes a group of all ranks for this call.
        on_phase: called on every rank after each of `PHASES`; must not raise.
        write_event: called on the coordinator with the save's event and one for each step deleted; must not raise; None
            appends it to the run's `events.jsonl`.
        in_use: asked on the coordinator for steps that must stay for now, whatever `keep_last` says.

    Raises:
        SaveError: on every rank that is left, with the cause from the rank that failed, or with the ranks that are lost.
            `committed` is False, or None where it is not known.
        ReplicaMismatch: copies of a tensor that should be equal are not.
        UsageError: `keep_last` or `keep_every` is below 1.
    """
    check_rule(keep_last, keep_every)
    run, clock = on_disk(run), PhaseClock(on_phase)
    write_event = write_event or partial(append_event, run)
    is_coordinator = (rank_and_world_size()[0] if group is None else group.rank) == COORDINATOR
    try:
        with Group.lent(group) as ranks:
            plan = attempt(lambda: plan_save(step, contents, ranks.rank, ranks.world_size, max_file_bytes, files))
            manifest = _save(run, plan, contents, ranks, clock)
            with suppress(RanksDisagree):  # the step is committed; a rank that is lost now shows at the next exchange
                work = partial(_retire, run, keep_last, keep_every, step, in_use, write_event)
                ranks.from_coordinator(work)  # the others wait for its end
            clock.done("retire")
            if manifest is not None:
                num_bytes = sum(record.num_bytes for record in manifest.files.values())
                write_event(_event(step, clock, outcome="committed", ranks=ranks.world_size, bytes=num_bytes))
            return run / step_name(step)
    except RanksDisagree as error:
        if is_coordinator:
            write_event(_event(step, clock, outcome="failed", error=str(error)))
        raise _save_error(run, step, error, clock) from error


def _save(run: Path, planned: Outcome, contents: Contents, group: Group, clock: PhaseClock) -> Manifest | None:
    """Go through the phases up to the commit; return the manifest (coordinator).

    What goes wrong on one rank is an `Outcome` until the next exchange, which every rank reaches.
    """
    plan = agreed(planned, contents, group)
    clock.done("plan")

    temporary = group.from_coordinator(lambda: step_files.make_temporary(run, plan).name)
    with _writing(run / temporary, group) as writer:
        clock.done("reserve")

        written = attempt(lambda: step_files.write(writer, plan, contents, group))
        clock.done("write")

        outcome = written.then(writer.sync)
        clock.done("sync")

        told: list[step_files.Written] = []
        group.agree(outcome.then(lambda: (writer.sums(), written.value)), lambda everybody: told.extend(everybody))
        clock.done("agree")

        made = Outcome()
        if group.is_coordinator:
            made = attempt(lambda: step_files.make_manifest(plan, contents, told))
            outcome = made.then(lambda: step_files.write_manifest(writer, made.value))
        clock.done("manifest")

        path = run / step_name(plan.step)
        group.from_coordinator(lambda: outcome.then(lambda: step_files.commit(writer.directory, path)).get())
        clock.done("commit")
    manifest: Manifest | None = made.value
    return manifest


def agreed(planned: Outcome, contents: Contents, group: Group) -> SavePlan:
    """Return this rank's plan when all ranks mean the same step, after settling what may differ, subject by subject.

    Every rank calls it with what its `plan_save` came to.

    Raises:
        RanksDisagree: they do not mean the same step.
    """
    subject = group.agree(planned.then(lambda: propose(planned.value, contents)), subject_of_dispute)
    if subject is None:
        plan: SavePlan = planned.get()
        return plan
    told = attempt(lambda: detail(subject, planned.value, contents))
    answer = group.agree(told, lambda everybody: settle(subject, everybody))
    return agreed(attempt(lambda: settled(planned.value, subject, answer)), contents, group)


@contextmanager
def _writing(directory: Path, group: Group) -> Iterator[StepWriter]:
    """Close what is open at the end; after a failure the coordinator removes the directory."""
    writer = StepWriter(directory, BLOCK_BYTES)
    try:
        yield writer
    except RanksDisagree:
        attempt_or_warn(f"{directory} was not closed", writer.close)
        if group.is_coordinator:
            attempt_or_warn(f"{directory} was not removed", lambda: step_files.remove_temporary(directory))
        raise
    finally:
        writer.close()


def _save_error(run: Path, step: int, error: RanksDisagree, clock: PhaseClock) -> SaveError:
    """Return the error of this rank, which says whether the step is committed as far as this rank can know."""
    coordinator_lost = COORDINATOR in error.lost and clock.phase in ("agree", "commit")
    there = attempt(lambda: posix.exists_directory(run / step_name(step)))
    maybe_renamed = clock.phase == "commit" and (there.error is not None or there.value)
    committed = None if coordinator_lost or maybe_renamed else False
    kind = ReplicaMismatch if error.kind == ReplicaMismatch.__name__ else SaveError
    what = "may or may not be saved" if committed is None else "is not saved"
    advice = "; start the ranks again and resume: the newest whole step is untouched" if error.lost else ""
    return kind(f"step {step} {what} in {run}: {error}{advice}", committed=committed, lost=error.lost)


def _event(step: int, clock: PhaseClock, **members: object) -> dict[str, object]:
    return {"event": "save", "step": step, **members, "seconds": clock.seconds, "stall": clock.stall}


def _retire(
    run: Path,
    keep_last: int | None,
    keep_every: int | None,
    step: int,
    in_use: Callable[[], Collection[int]],
    write_event: WriteEvent,
) -> None:
    def work() -> None:
        retire(run, keep_last, keep_every, step, in_use=in_use(), write_event=write_event)

    attempt_or_warn(f"{run}: old steps were not deleted", work)
