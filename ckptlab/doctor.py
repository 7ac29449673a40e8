"""What works on this machine, and what to do about the rest. Loads neither torch nor what only POSIX has.

`examine` gives the findings; it needs nothing but the standard library, because it must run where the rest cannot.
"""

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

MB = 1_000_000
WORLD_BYTES = 800 * MB  # the demo with its four ranks, measured
DISK_BYTES = 500 * MB
SHARED_BYTES = 64 * MB  # what Docker gives; loader workers hand batches over here


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at: `ok`, a `note` that nothing waits for, or `missing` and needed."""

    what: str
    found: str
    state: Literal["ok", "note", "missing"]
    advice: str = ""


def examine(directory: Path) -> Iterator[Finding]:
    """Look at this machine; runs would be saved below `directory`."""
    yield _platform()
    yield _python()
    yield _torch()
    yield _processors()
    yield _memory()
    yield _disk(directory)
    if sys.platform == "linux":
        yield _shared_memory()
    yield _fsync(directory)
    yield _loopback()
    yield _tool("make", "it starts the course: make lab")
    yield _tool("git", "you need it only to fetch a newer version")
    yield _cuda()


def _finding(what: str, found: str, good: bool, advice: str, otherwise: Literal["note", "missing"] = "missing") -> Finding:
    return Finding(what=what, found=found, state="ok" if good else otherwise, advice="" if good else advice)


def _platform() -> Finding:
    found = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform == "darwin":
        return _finding("platform", found, False, "macOS is supported, but not run in CI: tell us what fails", "note")
    advice = "use WSL 2 on Windows (wsl --install) and start again in there; elsewhere Linux or macOS"
    return _finding("platform", found, sys.platform == "linux", advice)


def _python() -> Finding:
    return _finding("python", platform.python_version(), sys.version_info >= (3, 11), "install Python 3.11 or newer")


def _torch() -> Finding:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return _finding("torch", "not installed", False, "pip install torch, version 2.9 or newer")
    release = re.match(r"(\d+)\.(\d+)", version)
    good = release is not None and (int(release[1]), int(release[2])) >= (2, 9)
    return _finding("torch", version, good, "pip install --upgrade torch: 2.9 or newer is needed")


def _processors() -> Finding:
    count = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return _finding("processors", str(count), count >= 2, "with one, all ranks take turns: everything works, slowly", "note")


def _memory() -> Finding:
    """Ask for what is free, and never more than a container's limit."""
    num_bytes = _available_bytes()
    if num_bytes is None:
        return _finding("memory", "unknown", False, f"the demo takes {WORLD_BYTES // MB} MB", "note")
    advice = f"the demo takes {WORLD_BYTES // MB} MB: close other programs, or take fewer ranks"
    return _finding("memory", f"{num_bytes // MB} MB free", num_bytes >= WORLD_BYTES, advice, "note")


def _available_bytes() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    except OSError:
        return None
    free = int(lines["MemAvailable"].split()[0]) * 1024
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return free
    return free if limit == "max" else min(free, int(limit))


def _disk(directory: Path) -> Finding:
    num_bytes = shutil.disk_usage(directory).free
    advice = "a save may not fit: free some, or work in another directory"
    return _finding("disk", f"{num_bytes // MB} MB free in {directory}", num_bytes >= DISK_BYTES, advice)


def _shared_memory() -> Finding:
    try:
        num_bytes = shutil.disk_usage("/dev/shm").total
    except OSError:
        return _finding("/dev/shm", "not there", False, "mount a tmpfs there: loader workers hand batches over in it", "note")
    advice = "in Docker give --shm-size=1g: loader workers hand batches over here"
    return _finding("/dev/shm", f"{num_bytes // MB} MB", num_bytes > SHARED_BYTES, advice, "note")


def _fsync(directory: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            file.write(bytes(4096))
            file.flush()
            begin = time.perf_counter()
            os.fsync(file.fileno())
            seconds = time.perf_counter() - begin
    except OSError as error:
        return _finding("fsync", f"{directory}: {error.strerror}", False, "work in a directory that you may write, on a disk")
    return _finding("fsync", f"works in {directory}, {seconds * 1000:.1f} ms", True, "")


def _loopback() -> Finding:
    """The ranks of a world talk to each other over the loopback interface."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
            return _finding("loopback", "127.0.0.1 answers", True, "")
    except OSError as error:
        return _finding("loopback", str(error), False, "allow connections to 127.0.0.1: ranks talk over it")


def _tool(name: str, advice: str) -> Finding:
    path = shutil.which(name)
    return _finding(name, path or "not found", path is not None, f"install {name}: {advice}", "note")


def _cuda() -> Finding:
    if shutil.which("nvidia-smi") is None:
        return _finding("cuda", "no NVIDIA driver", True, "")
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    devices = [line.split(" (UUID")[0] for line in answer.splitlines() if line.startswith("GPU ")]
    if not devices:
        return _finding("cuda", "a driver, but no device", False, "ranks run on the CPU; see nvidia-smi", "note")
    built = _torch_sees_cuda()
    return _finding("cuda", "; ".join(devices), built, "this torch is the CPU build: ranks run on the CPU", "note")


def _torch_sees_cuda() -> bool:
    """A CUDA build of torch says so in its version, or needs NVIDIA's packages."""
    try:
        torch = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return False
    return "+cu" in torch.version or ("+" not in torch.version and any("nvidia" in need for need in torch.requires or ()))
