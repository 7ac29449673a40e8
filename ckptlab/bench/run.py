"""`bench`: measure all contenders on real ranks, in turns, in a folder that is gone afterwards. Torch is not loaded here."""

import contextlib
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ckptlab.bench.contenders import OTHER_LAYOUT, Measure
from ckptlab.bench.machine import can_drop_cache, free_disk, free_memory, machine
from ckptlab.bench.report import Measured, Report, Row, row_of
from ckptlab.bench.shapes import total_bytes, transformer, with_moments
from ckptlab.errors import UsageError
from ckptlab.ranks import World

COPIES_ON_DISK = 4  # what ckptlab, DCP and the floors have saved to be loaded, and one more
COPIES_IN_MEMORY = 5  # the state and memory to load into, both in two layouts, and a copy that a peer makes
RANK_BYTES = 150_000_000  # of a rank that does nothing
TIMEOUT_SECONDS = 300.0  # of one repetition
HOW_MEMORY = "growth of a rank's resident memory (VmHWM, reset before), mapped files included; the most of all ranks and runs"
Say = Callable[[str, int, int], object]
"""What is measured now, how many repetitions are done, and how many there are in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to measure on; the defaults are for a machine of two cores.

    Attributes:
        ranks: the world size.
        bytes: of the state over all ranks, replicas counted once; what comes out is near it.
        layout: rows, as FSDP2 cuts tensors; columns, as tensor parallel does; or replicated.
        directory: where a folder for the time of the run is made.
        repeat: repetitions that count; one more comes before them.
        warm: read from the page cache also where it could be emptied.
        device: of the tensors, "cpu" or "cuda"; ranks share GPUs over gloo where there are fewer.
    """

    ranks: int = 2
    bytes: int = 256_000_000
    layout: str = "rows"
    directory: Path = Path()
    repeat: int = 5
    warm: bool = False
    device: str = "cpu"

    @property
    def state_bytes(self) -> dict[str, int]:
        """Bytes of the state by section."""
        return {section: total_bytes(named) for section, named in with_moments(transformer(self.bytes)).items()}


def bench(settings: Settings, measures: Sequence[Measure], say: Say = lambda what, done, in_all: None) -> Report:
    """Measure all contenders and return what was found; what is on the disk for it is gone then, also after an interrupt.

    Raises:
        UsageError: the directory is not there, or there is not enough space or memory, and how much is needed.
        WorldError: a rank is lost, or there is no such device.
    """
    if not settings.directory.is_dir():
        raise UsageError(f"{settings.directory} is not a directory; give one on the disk that is to be measured")
    _check_room(settings)
    cold = not settings.warm and can_drop_cache(settings.directory)
    num_bytes = settings.state_bytes
    in_all = sum(len(measure.contenders) for measure in measures) * (settings.repeat + 1)
    with (
        tempfile.TemporaryDirectory(prefix=".ckptlab-bench-", dir=settings.directory) as folder,
        World(settings.ranks, timeout=TIMEOUT_SECONDS, device=settings.device) as world,
        contextlib.redirect_stdout(sys.stderr),  # what peers print on the ranks
    ):
        world.run(_opening(settings, Path(folder), cold))
        measured, done = [], count()
        for measure in measures:
            rows = _in_turns(measure, settings.repeat, world, lambda what: say(what, next(done), in_all))
            measured.append(Measured(measure.name, sum(num_bytes[section] for section in measure.sections), rows))
            world.run("stage.forget()")
    return Report(_told(settings, cold), machine(settings.directory), measured)


def _in_turns(measure: Measure, repeat: int, world: World, say: Callable[[str], object]) -> tuple[Row, ...]:
    """Run every contender in every repetition, each time in another order; the first repetition only warms up."""
    told: dict[str, list[list[Any]]] = {one.name: [] for one in measure.contenders}
    for repetition in range(repeat + 1):
        for contender in random.Random(repetition).sample(measure.contenders, len(measure.contenders)):
            say(f"{measure.name}: {contender.name}")
            ranks: list[Any] = world.run(f"measure({contender.path!r}, stage)")
            if repetition or any(rank["faults"] for rank in ranks):
                told[contender.name].append(ranks)
    return tuple(row_of(one, told[one.name]) for one in measure.contenders)


def _opening(settings: Settings, folder: Path, cold: bool) -> str:
    """Return what makes the stage on every rank; the ranks keep it."""
    other = OTHER_LAYOUT[settings.layout]
    return f"""
        from pathlib import Path
        from ckptlab.bench.measure import measure
        from ckptlab.bench.stage import Stage
        folder = Path({str(folder.resolve())!r})
        stage = Stage({settings.layout!r}, {other!r}, {settings.bytes}, folder, cold={cold}, device={settings.device!r})
        stage.state()
        None
    """


def _check_room(settings: Settings) -> None:
    state = sum(settings.state_bytes.values())
    on_disk = COPIES_ON_DISK * state
    if (free := free_disk(settings.directory)) < on_disk:
        raise UsageError(
            f"{settings.directory} has {free / 1e9:.1f} GB free, and {on_disk / 1e9:.1f} GB are needed; give a smaller --bytes"
        )
    copies = settings.ranks if "replicated" in (settings.layout, OTHER_LAYOUT[settings.layout]) else 1
    in_files = on_disk if machine(settings.directory)["file_system"] == "tmpfs" else 0
    needed = COPIES_IN_MEMORY * state * copies + settings.ranks * RANK_BYTES + in_files
    if (memory := free_memory()) is not None and memory < needed:
        raise UsageError(f"{memory / 1e9:.1f} GB of memory are free, and {needed / 1e9:.1f} are needed; give a smaller --bytes")


def _told(settings: Settings, cold: bool) -> dict[str, Any]:
    told = {**asdict(settings), "directory": str(settings.directory.resolve()), "state_bytes": settings.state_bytes}
    cache = "cold: put out of the page cache before each load" if cold else "warm: files are in the page cache"
    return {**told, "page_cache": cache, "loaded_as": OTHER_LAYOUT[settings.layout], "peak_extra_bytes": HOW_MEMORY}
