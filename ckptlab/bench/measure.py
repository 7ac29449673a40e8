"""Time one contender once, on every rank at once, and see how far the process grew meanwhile. Rank side."""

import ctypes
import gc
import logging
import pkgutil
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from ckptlab.bench.stage import Stage

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # Linux: VmHWM starts again from what is resident now


def measure(path: str, stage: Stage) -> dict[str, Any]:
    """Run the contender "module:name" once and return seconds, extra_bytes and faults. Every rank calls it.

    The ranks begin together. A contender that raises has a fault; a rank that waits for it in a collective runs into the
    world's timeout.
    """
    told: dict[str, Any] = {"seconds": None, "extra_bytes": None}
    stage.faults.clear()
    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"):  # of peers; they are measured, not fixed
        try:
            told |= _run(path, stage)
        except Exception as error:  # every kind: this contender is void, the others are measured
            stage.faults.append(f"rank {stage.rank}: {type(error).__name__}: {error}".splitlines()[0])
    stage.clean()
    return {**told, "faults": list(stage.faults)}


def _run(path: str, stage: Stage) -> dict[str, Any]:
    work = pkgutil.resolve_name(path)(stage)
    next(work)
    peak = _Peak()
    stage.barrier()
    begin = time.perf_counter()
    told = next(work)
    seconds = time.perf_counter() - begin if told is None else told
    extra_bytes = peak.extra_bytes()
    if next(work, work) is not work:
        raise TypeError(f"{path} yields more than twice; only what it does between its two yields is timed")
    return {"seconds": seconds, "extra_bytes": extra_bytes}


class _Peak:
    """How far the resident memory of this process rises above what it is now, mapped files included."""

    def __init__(self) -> None:
        gc.collect()
        with suppress(AttributeError, OSError):  # what is free in the heap would hide what is taken from it
            ctypes.CDLL(None).malloc_trim(0)
        self._before: int | None = None
        with suppress(OSError):
            CLEAR_REFS.write_text(RESET_PEAK)
            self._before = _status_bytes("VmRSS")

    def extra_bytes(self) -> int | None:
        """Return the most so far; None where the system does not tell."""
        return None if self._before is None else max(0, _status_bytes("VmHWM") - self._before)


def _status_bytes(member: str) -> int:
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(lines[member].split()[0]) * 1024
