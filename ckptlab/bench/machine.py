"""What the machine is, has free, and lets us do. The process that starts a bench calls it; torch is not loaded."""

import os
import platform
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from ckptlab.storage import posix

PROBE_BYTES = 1 << 20


def machine(directory: Path) -> dict[str, object]:
    """Return what figures depend on: cores, memory, the file system of a directory, versions."""
    return {
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "file_system": posix.file_system_of(directory) or "unknown",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
    }


def free_disk(directory: Path) -> int:
    """Return the free bytes where a directory is."""
    return shutil.disk_usage(directory).free


def free_memory() -> int | None:
    """Return the bytes that programs may still take; None where the system does not tell."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    except OSError:
        return None
    return int(lines["MemAvailable"].split()[0]) * 1024


def can_drop_cache(directory: Path) -> bool:
    """Try whether a file can be put out of the page cache here, so that reading it goes to the disk."""
    if sys.platform != "linux":
        return False
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(bytes(PROBE_BYTES))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(file.fileno(), [bytearray(PROBE_BYTES)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return True  # not without waiting for the disk
        except OSError:
            return False
    return False
