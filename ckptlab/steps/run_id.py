"""`RUN/.run-id`: which run this is. What stands elsewhere under the same path may be of another one."""

import secrets
from pathlib import Path

from ckptlab.errors import StepError
from ckptlab.format.names import RUN_ID
from ckptlab.storage import posix

MAX_BYTES = 100


def run_id_of(run: Path) -> str:
    """Return the run's own name, made up where it has none yet (coordinator)."""
    if posix.size_of(run / RUN_ID) is None:
        posix.write_file(run / RUN_ID, secrets.token_hex(16).encode())
        posix.sync_directory(run)
    return posix.read_file(run / RUN_ID, MAX_BYTES).decode(errors="replace")


def claim(folder: Path, run_id: str) -> None:
    """Make a folder for this run's steps alone, that no other user can read or write.

    Raises:
        StepError: it is another user's, a link, or has what another run has saved.
    """
    posix.make_private_directory(folder)
    if posix.size_of(folder / RUN_ID) is None:
        posix.write_file(folder / RUN_ID, run_id.encode())
    elif run_id_of(folder) != run_id:
        raise StepError(
            f"{folder} has steps of another run, or of this one before its directory was made anew; remove the folder, "
            f"or give the tier another directory"
        )
