"""Steps of ckptlab itself as one more system, written: from any checkpoint that was opened, as a save would have written it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ckptlab.checkpoint import step_files
from ckptlab.checkpoint.collectives import attempt_or_warn
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.plan import SavePlan, plan_save
from ckptlab.checkpoint.streamed import OnBytes, without_values, write_streamed
from ckptlab.checkpoint.writer import StepWriter
from ckptlab.errors import StepError, UsageError
from ckptlab.format import names
from ckptlab.format.checksums import BLOCK_BYTES
from ckptlab.format.files import MAX_FILE_BYTES
from ckptlab.format.manifest import CONVERTED_FROM, Manifest
from ckptlab.interop.foreign import Foreign
from ckptlab.interop.step_source import SYSTEM, open_step
from ckptlab.steps.events import append_event
from ckptlab.steps.housekeeping import clean_temporary
from ckptlab.steps.steps import newest_step
from ckptlab.storage import RunLock, on_disk, posix

__all__ = ["open_step", "write_step"]


def write_step(foreign: Foreign, run: Path, number: int, on_bytes: OnBytes, max_file_bytes: int = MAX_FILE_BYTES) -> Path:
    """Write a checkpoint as a step of a run, all of it or nothing, and return the step's directory.

    A tensor at a time is in memory. The run's lock is held meanwhile, and the manifest says where the step comes from.

    Args:
        foreign: what to write; of weights alone a step is made that `load_weights` takes and `resume` refuses.
        run: the run's directory; made when it is not there.
        number: of the step; the state's own counter of steps becomes this.
        on_bytes: told of bytes of tensors that were written; must not raise.
        max_file_bytes: of tensors in a file.

    Raises:
        UsageError: the run has a step's name.
        StepError: there is a directory of the step's name, or the run is in use.
        LoadError: what the checkpoint holds cannot be read, or is not what it says.
    """
    run = on_disk(run)
    contents = Contents(
        model={},
        copies=without_values({section: foreign.tensors.get(section, {}) for section in names.SECTIONS}),
        aliases=foreign.aliases,
        state={**(foreign.state or {}), "step": number},
        model_files=foreign.model_files,
        exact_if=foreign.exact_if,
    )
    if names.parse_step(run.absolute().name) is not None:
        raise UsageError(f"{run} has the name of a step; name the run that gets one, {run.absolute().parent}, and the number")
    plan = plan_save(number, contents, 0, 1, max_file_bytes)
    with _locked(run):
        manifest = _write(foreign, run, plan, contents, on_bytes)
        num_bytes = sum(file.num_bytes for file in manifest.files.values())
        event = {"event": "convert", "step": number, "outcome": "committed", "from": foreign.system, "bytes": num_bytes}
        append_event(run, event)
    return run / names.step_name(number)


def _write(foreign: Foreign, run: Path, plan: SavePlan, contents: Contents, on_bytes: OnBytes) -> Manifest:
    path = run / names.step_name(plan.step)
    if posix.exists_directory(path):  # whole or not: it may be another system's, and the very source
        raise StepError(f"{path} is there already; give the step another number, or name another run")
    if foreign.state is None and (newest := newest_step(run)) and newest.manifest and newest.manifest.tensors["optim"]:
        raise StepError(f"{run} is a training run's, and of weights alone it would not go on; name another run")
    temporary = step_files.make_temporary(run, plan)
    writer = StepWriter(temporary, BLOCK_BYTES)
    try:
        write_streamed(writer, plan, contents, foreign.read, on_bytes)
        writer.sync()
        made = step_files.make_manifest(plan, contents, [(writer.sums(), {})])
        origin = {} if foreign.system == SYSTEM else {CONVERTED_FROM: foreign.system}
        manifest = replace(made, saved_by={**made.saved_by, **origin})
        step_files.write_manifest(writer, manifest)
        step_files.commit(temporary, path)
    except BaseException:
        writer.close()
        attempt_or_warn(f"{temporary} was not removed", lambda: step_files.remove_temporary(temporary))
        raise
    return manifest


@contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Hold the run's lock; a run that was made for a step that failed goes again."""
    new = not run.exists()
    with posix.made_directory(run):
        lock = RunLock.take(run)
        try:
            clean_temporary(run)
            yield
        except BaseException:
            if new:
                posix.remove_file(run / names.LOCK)
            raise
        finally:
            lock.release()
