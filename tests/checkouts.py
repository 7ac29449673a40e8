"""The course as a learner has it, in a folder of its own, so that a test never touches anybody's my-labs/."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from processes import until

PACKAGE = Path(__file__).parents[1] / "ckptlab"


def check_out(folder: Path) -> dict[str, str]:
    """Put the package into `folder`, beside which `labs/` is for the test to fill; return an environment that uses it."""
    (folder / "ckptlab").symlink_to(PACKAGE)
    home = folder / "home"
    home.mkdir()
    without = {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "JUPYTER_TOKEN", "CKPTLAB_HOME", "XDG_DATA_HOME"}
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return kept | {"PYTHONPATH": str(folder), "HOME": str(home)}


@contextmanager
def opened(folder: Path, environment: dict[str, str]) -> Iterator[tuple[str, Path]]:
    """Start the course there; give the address that it prints, and the file that has all it prints."""
    command, log = [sys.executable, "-m", "ckptlab.course.start"], folder / "log"
    with (
        log.open("w") as file,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        try:
            assert until(lambda: process.poll() is not None or _answers(_address(log)), 60), log.read_text()
            assert process.poll() is None, log.read_text()
            yield _address(log), log
        finally:
            process.terminate()


def _address(log: Path) -> str:
    found = re.search(r"^ +(http://\S+)$", log.read_text(), re.MULTILINE)
    return found[1] if found else ""


def _answers(address: str) -> bool:
    """JupyterLab prints its address a moment before it listens there."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname, parts.port or 0), timeout=5).close()
    except OSError:
        return False
    return True
