"""What a bench found, as JSON and as rows of a table: figures of seconds in, ratios out. Pure."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckptlab.bench.contenders import Contender, Role

HEADER = ("", "median", "min-max", "GB/s", "vs DCP", "vs floor", "memory")
FLOORS = (Role.FLOOR, Role.BESIDE)


@dataclass(frozen=True, slots=True)
class Row:
    """How a contender did.

    Attributes:
        contender: who.
        seconds: of each repetition, the slowest rank's.
        peak_extra_bytes: the most by which a rank's resident memory grew in any repetition; None where it is not known.
        void: why its figures do not count; None where they do.
    """

    contender: Contender
    seconds: tuple[float, ...]
    peak_extra_bytes: int | None = None
    void: str | None = None

    @property
    def spread(self) -> dict[str, float]:
        """Median, fastest and slowest, in seconds."""
        found = {"median": statistics.median(self.seconds), "min": min(self.seconds), "max": max(self.seconds)}
        return {name: round(seconds, 6) for name, seconds in found.items()}


@dataclass(frozen=True, slots=True)
class Measured:
    """One thing that was measured, and the bytes that it moved, over all ranks; 0 where seconds are not of bytes."""

    name: str
    num_bytes: int
    rows: tuple[Row, ...]

    def ratios(self, role: Role) -> dict[str, float]:
        """Return how fast each other contender is, in speeds of the fastest that has this role: 2.0 takes half the time.

        None is there where it or the other is void or was not measured. Floors are compared with nothing.
        """
        counted = [row for row in self.rows if row.void is None]
        base = min((row.spread["median"] for row in counted if row.contender.role is role), default=None)
        return {
            row.contender.name: round(base / row.spread["median"], 3)
            for row in counted
            if base is not None and row.contender.role not in (role, *FLOORS)
        }

    def to_json(self) -> dict[str, Any]:
        """Return the document; of a void contender it has only why."""
        counted = [row for row in self.rows if row.void is None]
        return {
            "bytes": self.num_bytes,
            "seconds": {row.contender.name: row.spread for row in counted},
            "vs_dcp": self.ratios(Role.DCP),
            "vs_floor": self.ratios(Role.FLOOR),
            "peak_extra_bytes": {row.contender.name: row.peak_extra_bytes for row in counted},
            "void": {row.contender.name: row.void for row in self.rows if row.void is not None},
            "notes": {row.contender.name: row.contender.note for row in self.rows},
        }

    def table(self, size: Callable[[int], str]) -> Iterator[tuple[str, ...]]:
        """Yield a row of cells for each contender, as wide as `HEADER`; `size` says bytes in words."""
        vs_dcp, vs_floor = self.ratios(Role.DCP), self.ratios(Role.FLOOR)
        for row in self.rows:
            name = row.contender.name
            if row.void is not None:
                yield name, "void", *[""] * (len(HEADER) - 2)
                continue
            spread = row.spread
            yield (
                name,
                f"{spread['median']:.3f} s",
                f"{spread['min']:.3f}-{spread['max']:.3f}",
                f"{self.num_bytes / spread['median'] / 1e9:.2f}" if self.num_bytes else "",
                f"{vs_dcp[name]:.2f}" if name in vs_dcp else "",
                f"{vs_floor[name]:.2f}" if name in vs_floor else "",
                "" if row.peak_extra_bytes is None else size(row.peak_extra_bytes),
            )

    def remarks(self) -> Iterator[str]:
        """Yield what a reader has to know to compare, and why what is void is void."""
        for row in self.rows:
            if row.void is not None:
                yield f"{row.contender.name} is void: {row.void}"
        yield "; ".join(f"{row.contender.name}: {row.contender.note}" for row in self.rows if row.contender.note)


@dataclass(frozen=True, slots=True)
class Report:
    """All that was measured in one run, and on what."""

    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    measured: Sequence[Measured]

    @property
    def is_void(self) -> bool:
        """Whether some figures do not count."""
        return any(row.void is not None for one in self.measured for row in one.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the document: settings, machine, and a member for each thing that was measured."""
        return {
            "settings": dict(self.settings),
            "machine": dict(self.machine),
            **{one.name: one.to_json() for one in self.measured},
        }


def row_of(contender: Contender, repetitions: Sequence[Sequence[Mapping[str, Any]]]) -> Row:
    """Return the row from what each rank told in each repetition: the slowest rank counts, and any fault voids it."""
    told = [rank for ranks in repetitions for rank in ranks]
    faults = [fault for rank in told for fault in rank["faults"]]
    if faults:
        return Row(contender, (), void=faults[0])
    extra = [rank["extra_bytes"] for rank in told if rank["extra_bytes"] is not None]
    seconds = tuple(max(rank["seconds"] for rank in ranks) for ranks in repetitions)
    return Row(contender, seconds, max(extra, default=None))
