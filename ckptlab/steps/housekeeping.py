"""Directories of a run that are no steps: half-written ones, steps set aside because they were bad, and trash.

Only the process that holds the run's lock calls what changes something here. In a store nothing is renamed: there a step is one
as long as its manifest is there.
"""

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Literal

from ckptlab.errors import StepError
from ckptlab.format.manifest import MAX_MANIFEST_BYTES
from ckptlab.format.names import (
    MANIFEST,
    ROLLED_BACK,
    SHRINK_LOCK,
    aside_name,
    parse_aside,
    parse_rollback,
    parse_step,
    parse_was,
    rollback_nonce,
    step_name,
)
from ckptlab.storage import ObjectPath, Place, RunLock, posix, store

MAX_MARK_BYTES = 100
LEFT = ("torn", "trash")  # by a process that was killed


def list_asides(run: Place) -> dict[str, str]:
    """Map the name of each such directory to what it is: torn, bad or trash."""
    kinds = ((name, parse_aside(name)) for name in store.list_names(run))
    return {name: kind for name, kind in kinds if kind is not None and store.exists_directory(run / name)}


def set_aside(step_path: Place, kind: Literal["trash", "bad"], rolled_back_to: int | None = None) -> Path:
    """Rename a step so that it is none any more, durably; give back its new path, which tells of a rollback."""
    number = parse_step(step_path.name)
    if not isinstance(step_path, Path):
        raise StepError(f"{step_path} is in an object store; nothing is renamed there")
    if number is None:
        raise StepError(f"{step_path} does not have the name of a step; only steps are set aside")
    nonce = secrets.token_hex(4)
    nonce = nonce if rolled_back_to is None else rollback_nonce(rolled_back_to, nonce)
    target = step_path.with_name(aside_name(kind, number, nonce))
    posix.rename(step_path, target)
    posix.sync_directory(step_path.parent)
    return target


def set_aside_in_store(step_path: ObjectPath) -> ObjectPath | None:
    """Move the manifest of a step in a store to where a bad step has it; tell where, None when there is no manifest.

    The files stay: whoever moves the manifest back has the step again, until one of this number is pushed.
    """
    number = parse_step(step_path.name)
    assert number is not None, "only steps are set aside"
    if store.size_of(step_path / MANIFEST) is None:
        return None
    target = step_path.parent / aside_name("bad", number, secrets.token_hex(4))
    target.store.create((target / MANIFEST).key, store.read_file(step_path / MANIFEST, MAX_MANIFEST_BYTES))
    step_path.store.delete([(step_path / MANIFEST).key])
    return target


def remove_from_store(step_path: ObjectPath) -> None:
    """Delete a step in a store, the manifest first: killed in between, it leaves files that are no step."""
    step_path.store.delete([(step_path / MANIFEST).key])
    step_path.store.delete([(step_path / name).key for name in step_path.store.sizes(step_path.key)])


def mark_rollback(run: Path, number: int) -> None:
    """Say, durably, that no step after this one is to be resumed from; where no directory of the run was renamed for it too."""
    unmark_rollback(run)
    posix.write_file(run / ROLLED_BACK, f"{number}\n".encode())
    posix.sync_directory(run)


def marked_rollback(run: Path) -> int | None:
    """Tell the step that the run was rolled back to, if nothing has gone on from there yet."""
    if posix.size_of(run / ROLLED_BACK) is None:
        return None
    text = posix.read_file(run / ROLLED_BACK, MAX_MARK_BYTES).strip()
    return int(text) if text.isdigit() else None


def unmark_rollback(run: Path) -> None:
    """Say that the run goes on (coordinator)."""
    posix.remove_file(run / ROLLED_BACK)


def rolled_back(run: Path) -> list[tuple[int, int]]:
    """Tell what rollbacks have undone, as (to, step): steps after `to`, up to `step`."""
    return [pair for name in store.list_names(run) if (pair := parse_rollback(name)) is not None]


def clean_temporary(run: Path) -> list[str]:
    """Remove what a killed process left half-written or half-deleted; bad steps stay, for a person to look at."""
    asides = list_asides(run)
    names = [name for name, kind in asides.items() if kind in LEFT]
    for name in names:
        posix.remove_tree(run / name)
    if {"small", "was"} & set(asides.values()):
        with suppress(StepError):  # steps are being made small right now
            lock = RunLock.take(run, SHRINK_LOCK)
            try:
                names += settle_shrinks(run)
            finally:
                lock.release()
    return names


def settle_shrinks(run: Path) -> list[str]:
    """End what a killed shrink left: one of both forms of a step stands, the other goes. For who holds the shrinks' lock."""
    left = [name for name, kind in list_asides(run).items() if kind in ("small", "was")]
    for name in left:
        number = parse_was(name)
        if number is not None and not posix.exists_directory(run / step_name(number)):
            posix.rename(run / name, run / step_name(number))
            posix.sync_directory(run)
        else:
            remove_aside(run / name)
    return left


def remove_aside(path: Path) -> None:
    """Remove a step's other form; killed meanwhile it leaves trash, which nobody puts back."""
    trash = path.with_name(f".trash-{path.name.lstrip('.').partition('-')[2]}")
    posix.rename(path, trash)
    with suppress(FileNotFoundError):  # a run that starts now removes trash too
        posix.remove_tree(trash)
