"""Which steps of a run exist, and are they committed and whole: `read_step` decides, for load, retention and commands alike.

Whole means: the manifest is valid and of this step, and every file that it lists is there with the recorded size; and the step
that it is stored against, if there is one, is whole too. Whether the bytes are still those that were written is `verify`'s
question, which reads them all.
"""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from ckptlab.errors import CkptlabError, StepError, StoreError
from ckptlab.format.manifest import MAX_MANIFEST_BYTES, Manifest
from ckptlab.format.names import EVENTS, LOCK, MANIFEST, parse_step, step_name
from ckptlab.storage import ObjectPath, Place, store

MAX_CHAIN = 8  # so many steps stored against each other, and the first that is not: a reader has a file of each open


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A directory with the name of a step; `manifest` is `None` when it cannot be read, `fault` when the step is whole."""

    number: int
    path: Place
    manifest: Manifest | None
    fault: str | None
    torn: bool = False  # there is no manifest: written, but not committed

    @property
    def whole(self) -> bool:
        """Whether the step is committed and has all its files."""
        return self.fault is None

    @property
    def verdict(self) -> str:
        """Whole, or why not, for a person."""
        return f"not whole: {self.fault}" if self.fault else "whole"

    @property
    def num_bytes(self) -> int:
        """The recorded bytes of all files; 0 without a manifest."""
        return sum(record.num_bytes for record in self.manifest.files.values()) if self.manifest else 0


class _TornError(StepError):
    """There is no manifest."""


def read_step(path: Place) -> Step:
    """Decide whether a step is committed and whole; a step that is not has a `fault` that says why.

    Raises `StepError` when the path does not have the name of a step, and `StoreError` when its store does not answer: whether
    the step is whole is not known then.
    """
    return _read_step(path, links=0)


def _read_step(path: Place, links: int) -> Step:
    number = parse_step(path.name)
    if number is None:
        raise StepError(f"{path} is not a step: a step is a directory named like step-00000040")
    try:
        manifest = _read_manifest(path, number)
        fault = next((f"{file}: {what}" for file, what in file_faults(path, manifest)), None)
        fault = fault or base_fault(path, manifest, links)
    except StoreError:
        raise
    except (CkptlabError, OSError) as error:
        return Step(number=number, path=path, manifest=None, fault=str(error), torn=isinstance(error, _TornError))
    return Step(number=number, path=path, manifest=manifest, fault=fault)


def base_fault(path: Place, manifest: Manifest, links: int = 0) -> str | None:
    """Tell why the step that this one, at a path in the same run, is stored against cannot be read; `None` where all is well.

    `links` counts the steps that are stored against this one.
    """
    if manifest.base is None:
        return None
    if links >= MAX_CHAIN:
        return f"stored against step {manifest.base}: a chain of more than {MAX_CHAIN} steps, which is not followed"
    found = _read_step(path.parent / step_name(manifest.base), links + 1)
    return None if found.whole else f"stored against step {manifest.base}, which is not whole: {found.fault}"


def file_faults(path: Place, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Tell each listed file that is not there with its recorded size, as (file, what is wrong)."""
    listed = store.listed_sizes(path)
    for name, record in manifest.files.items():
        if listed.get(name) == record.num_bytes:
            continue  # a listing may be late, so that what it does not tell is asked for
        file = path / name
        try:
            num_bytes = store.size_of(file)
            if file.parent != path and not store.is_own_folder(file.parent):
                yield name, f"{file.parent.name} is not a directory of this step"
            elif num_bytes is None:
                yield name, "missing, or not a regular file"
            elif num_bytes != record.num_bytes:
                yield name, f"has {num_bytes} bytes, {record.num_bytes} were written"
        except OSError as error:  # a folder that may not be entered
            yield name, f"cannot be read: {error}"


def list_steps(run: Place) -> list[Step]:
    """List the steps of a run by number, whole or not; raise `StepError` when the directory is not there."""
    return [read_step(path) for path in _step_paths(run)]


def newest_step(run: Place, every: int = 1) -> Step | None:
    """Find the newest whole step that is a multiple of `every`; older ones are not read.

    Raises `StepError` when the directory is not there.
    """
    paths = [path for path in _step_paths(run) if (parse_step(path.name) or 0) % every == 0]
    return next((step for step in map(read_step, reversed(paths)) if step.whole), None)


def step_numbers(run: Place) -> list[int]:
    """List the numbers of what has the name of a step, in order; nothing is read. Nothing is there: none."""
    return sorted(number for name in store.list_names(run) if (number := parse_step(name)) is not None)


def find_steps(path: Place) -> list[Step]:
    """Read the step at a path that a person named, or all steps of the run there; raise `StepError` that says what is there."""
    path = store.absolute(path)
    if parse_step(path.name) is not None:
        return [find_step(path)]
    steps = list_steps(path)
    if not steps and not is_run(path):
        found = ", ".join(store.list_names(path)[:5]) or "nothing"
        raise StepError(f"{path} is neither a run nor a step: expected directories like step-00000040, found {found}")
    return steps


def is_run(path: Place) -> bool:
    """Whether a run was ever opened at a path that a person named."""
    return store.is_directory(path) and bool({EVENTS, LOCK} & set(store.list_names(path)))


def find_step(path: Place) -> Step:
    """Read the step at a path that a person named; raise `StepError` that says which steps are there."""
    path = store.absolute(path)
    if parse_step(path.name) is not None and store.exists_directory(path):
        return read_step(path)
    run = path if store.is_directory(path) else path.parent
    there = [step_path.name for step_path in _step_paths(run)]
    near = difflib.get_close_matches(path.name, there, n=1) or there[-1:]
    hint = f"; did you mean {run / near[0]}?" if near else ""
    what = "is not a step" if store.exists(path) else "is not there"
    raise StepError(f"{path} {what}; steps in {run}: {', '.join(there[-10:]) or 'none'}{hint}")


def _step_paths(run: Place) -> list[Place]:
    if not store.is_directory(run):
        raise StepError(f"{run} is not a directory; name the directory of a run, in which the steps are")
    return [run / step_name(number) for number in step_numbers(run)]


def _read_manifest(path: Place, number: int) -> Manifest:
    if not store.exists_directory(path):
        raise StepError("it is not there, or not a directory")
    if store.size_of(path / MANIFEST) is None:
        broken_off = "; a push or a deletion that did not end" if isinstance(path, ObjectPath) else ""
        raise _TornError(f"no {MANIFEST}: written, but not committed{broken_off}")
    manifest = Manifest.parse(store.read_file(path / MANIFEST, MAX_MANIFEST_BYTES))
    if manifest.step != number:
        raise StepError(f"{MANIFEST} is of step {manifest.step}")
    return manifest
