"""Directories of a run that are no steps: half-written ones, steps set aside because they were bad, and trash.

Only the process that holds the run's lock calls what changes something here.
"""

import secrets
from pathlib import Path
from typing import Literal

from ckptlab.errors import StepError
from ckptlab.format.names import aside_name, parse_aside, parse_step
from ckptlab.storage import Place, posix, store


def list_asides(run: Place) -> dict[str, str]:
    """Map the name of each such directory to what it is: torn, bad or trash."""
    kinds = ((name, parse_aside(name)) for name in store.list_names(run))
    return {name: kind for name, kind in kinds if kind is not None and store.exists_directory(run / name)}


def set_aside(step_path: Place, kind: Literal["trash", "bad"]) -> Path:
    """Rename a step so that it is none any more, durably; give back its new path."""
    number = parse_step(step_path.name)
    if not isinstance(step_path, Path):
        raise StepError(f"{step_path} is in an object store; nothing is set aside there")
    if number is None:
        raise StepError(f"{step_path} does not have the name of a step; only steps are set aside")
    target = step_path.with_name(aside_name(kind, number, secrets.token_hex(4)))
    posix.rename(step_path, target)
    posix.sync_directory(step_path.parent)
    return target


def clean_temporary(run: Path) -> list[str]:
    """Remove what a killed process left half-written or half-deleted; bad steps stay, for a person to look at."""
    names = [name for name, kind in list_asides(run).items() if kind != "bad"]
    for name in names:
        posix.remove_tree(run / name)
    return names
