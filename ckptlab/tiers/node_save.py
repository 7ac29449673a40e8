"""Save one step into the folders of the nodes: all of it or nothing, in the phases of `ckptlab.checkpoint.save`.

1. plan      describe own tensors; agree that all ranks mean the same step
2. reserve   the first rank of each node makes a temporary directory in the node's folder
3. write     every rank writes and sums its pieces
4. sync      every rank makes durable what it wrote, where the tier is
5. agree     outcomes and sums go to the coordinator, which makes the manifest and tells it to all
6. manifest  each rank's files go to its partner, `state.json` and the manifest to every node
7. commit    the first rank of each node renames the directory, once all nodes have all that they should
8. retire    the first rank of each node deletes old steps, once all nodes have the new one
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ckptlab.checkpoint import step_files
from ckptlab.checkpoint.collectives import Group, Outcome, RanksDisagree, attempt, attempt_or_warn
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.phases import PhaseClock
from ckptlab.checkpoint.plan import SavePlan, plan_save
from ckptlab.checkpoint.save import agreed
from ckptlab.checkpoint.writer import StepWriter
from ckptlab.errors import ReplicaMismatch, SaveError, StepError
from ckptlab.format.checksums import BLOCK_BYTES
from ckptlab.format.files import MAX_FILE_BYTES
from ckptlab.format.manifest import Manifest
from ckptlab.format.names import MANIFEST, STATE, step_name, temporary_name
from ckptlab.steps.events import WriteEvent
from ckptlab.steps.housekeeping import clean_temporary, set_aside
from ckptlab.steps.steps import step_numbers
from ckptlab.storage import posix
from ckptlab.tiers.moves import copies
from ckptlab.tiers.nodes import Here
from ckptlab.tiers.passing import pass_files


def save_on_nodes(
    directory: Path,
    step: int,
    contents: Contents,
    group: Group,
    *,
    partner: bool,
    durable: bool,
    keep_last: int,
    write_event: WriteEvent | None,
    on_phase: Callable[[str], None] | None,
) -> Path:
    """Save a step and return its directory on this rank's node. Every rank calls it; see `NodeTier.save`."""
    clock = PhaseClock(on_phase)

    def told(**members: object) -> None:
        if write_event is not None and group.is_coordinator:
            event = {"event": "save", "step": step, "tier": str(directory), **members}
            write_event({**event, "seconds": clock.seconds, "stall": clock.stall})

    try:
        planned = attempt(lambda: plan_save(step, contents, group.rank, group.world_size, MAX_FILE_BYTES, "by_rank"))
        plan = agreed(planned, contents, group)
        clock.done("plan")

        here = Here.of(directory, group)
        nonce = group.from_coordinator(lambda: secrets.token_hex(4))
        temporary = here.folder / temporary_name(step, nonce)
        group.agree(attempt(lambda: _make(temporary, step) if here.is_leader else None))
        with _removing(temporary, here):
            num_bytes = _write(temporary, plan, contents, group, here, clock, partner, durable)
            _commit(temporary, here.folder / step_name(step), group, here)
        clock.done("commit")
        if here.is_leader:
            attempt_or_warn(f"{here.folder}: old steps were not deleted", lambda: _retire(here.folder, step, keep_last))
        clock.done("retire")
        told(outcome="committed", ranks=group.world_size, bytes=num_bytes)
        return here.folder / step_name(step)
    except RanksDisagree as error:
        told(outcome="failed", error=str(error))
        committed = None if clock.phase == "commit" and error.lost else False
        what = "may or may not be saved" if committed is None else "is not saved"
        kind = ReplicaMismatch if error.kind == ReplicaMismatch.__name__ else SaveError
        raise kind(f"step {step} {what} in {directory} of the nodes: {error}", committed=committed, lost=error.lost) from error


def _make(temporary: Path, step: int) -> None:
    """Make the directory in which a node's part is written, and remove what a killed save left. Leaders only."""
    path = temporary.with_name(step_name(step))
    if posix.exists_directory(path):
        raise StepError(f"{path} is there already; resume from it, delete it, or save another step")
    posix.make_directory_durably(temporary.parent)
    clean_temporary(temporary.parent)
    posix.make_directory(temporary)


def _write(
    temporary: Path,
    plan: SavePlan,
    contents: Contents,
    group: Group,
    here: Here,
    clock: PhaseClock,
    partner: bool,
    durable: bool,
) -> int:
    """Go through the phases from `reserve` to `manifest`: afterwards every node has all files that it is to have.

    Returns the bytes of the step, each counted once.
    """
    writer = StepWriter(temporary, BLOCK_BYTES)
    clock.done("reserve")

    written = attempt(lambda: _write_own(writer, plan, contents, group))
    clock.done("write")

    outcome = written.then(writer.sync if durable else writer.close)
    attempt_or_warn(f"{temporary} was not closed", writer.close)
    clock.done("sync")

    told = outcome.then(lambda: (writer.sums(), written.value))
    answer = group.agree(told, lambda everybody: _made(step_files.make_manifest(plan, contents, everybody), everybody))
    manifest = attempt(lambda: Manifest.parse(answer["manifest"].encode()))
    clock.done("agree")

    moves = copies(here.nodes, answer["files"], STATE, partner)
    group.agree(Outcome(error=manifest.error))  # a rank that did not know the files could not take part in what follows
    files = manifest.value.files
    passed = attempt(lambda: pass_files(moves, temporary, files, BLOCK_BYTES, group, durable))
    if here.is_leader:
        passed = passed.then(lambda: posix.write_file(temporary / MANIFEST, manifest.value.to_json()))
    group.agree(passed)
    clock.done("manifest")
    return sum(record.num_bytes for record in files.values())


def _write_own(writer: StepWriter, plan: SavePlan, contents: Contents, group: Group) -> dict[str, Any]:
    if not posix.exists_directory(writer.directory):
        raise StepError(
            f"{writer.directory} is not there, though the first rank of this node made it; "
            f"where several machines have one host name, set CKPTLAB_NODE on each"
        )
    return step_files.write(writer, plan, contents, group)


def _made(manifest: Manifest, everybody: list[step_files.Written]) -> dict[str, Any]:
    """Return what the coordinator tells: the manifest, and by rank the files that it wrote."""
    return {"manifest": manifest.to_json().decode(), "files": [sorted(sums) for sums, _ in everybody]}


def _commit(temporary: Path, path: Path, group: Group, here: Here) -> None:
    """Rename on all nodes; where that fails on one, the others take it back."""
    renamed = attempt(lambda: _rename(temporary, path) if here.is_leader else None)
    try:
        group.agree(renamed)
    except RanksDisagree as error:
        if here.is_leader and renamed.error is None and not error.lost:
            attempt_or_warn(f"{path} was not removed", lambda: posix.remove_tree(set_aside(path, "trash")))
        raise


def _rename(temporary: Path, path: Path) -> None:
    for folder in (temporary, *(temporary / name for name in posix.list_names(temporary))):
        if posix.exists_directory(folder):
            posix.sync_directory(folder)
    step_files.commit(temporary, path)


@contextmanager
def _removing(temporary: Path, here: Here) -> Iterator[None]:
    """After a failure the first rank of each node removes what was written there."""
    try:
        yield
    except RanksDisagree:
        if here.is_leader:
            attempt_or_warn(f"{temporary} was not removed", lambda: step_files.remove_temporary(temporary))
        raise


def _retire(folder: Path, step: int, keep_last: int) -> None:
    """Delete all but the newest steps of a node up to the one that all nodes have now. Leaders only."""
    older = [number for number in step_numbers(folder) if number < step and posix.exists_directory(folder / step_name(number))]
    for number in older[: max(len(older) - keep_last + 1, 0)]:
        posix.remove_tree(set_aside(folder / step_name(number), "trash"))
