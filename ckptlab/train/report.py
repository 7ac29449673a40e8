"""Whether a run that was broken is the run that never was: deciding, from what both left on disk. No torch, no process."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from ckptlab.format.names import step_name
from ckptlab.steps import compare
from ckptlab.steps.events import read_events
from ckptlab.steps.steps import find_step
from ckptlab.train.records import Record, read_records

PARTS = {  # what is compared, and where it stands
    "parameters": "model",
    "optimizer": "optim",
    "scheduler, position": "state",
    "losses": "losses",
    "sample order": "samples",
    "random state": "ranks",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """What the demo did and found; `differences` names the first of each part that differs, in the order of `PARTS`."""

    directory: Path
    ranks: int
    steps: int
    killed_rank: int
    killed_at_step: int
    resumed_from_step: int
    differences: Mapping[str, str]
    seconds: float

    @property
    def first_difference(self) -> str | None:
        """The first of all, with the part it is in."""
        return next((f"{part}: {what}" for part, what in self.differences.items()), None)

    def to_json(self) -> dict[str, object]:
        """What `ckptlab demo --json` prints."""
        return {
            "directory": str(self.directory),
            "ranks": self.ranks,
            "steps": self.steps,
            "killed_rank": self.killed_rank,
            "killed_at_step": self.killed_at_step,
            "resumed_from_step": self.resumed_from_step,
            "bitwise_equal": not self.differences,
            "first_difference": self.first_difference,
            "differences": dict(self.differences),
            "seconds": round(self.seconds, 1),
        }


def find_differences(unbroken: Path, broken: Path, *, step: int, ranks: int) -> dict[str, str]:
    """Compare two runs' checkpoints of a step and all that their ranks recorded; return the first difference of each part.

    Raises:
        StepError: one of the runs has no whole checkpoint of this step.
    """
    first: dict[str, str] = {}
    steps = [find_step(run / step_name(step)) for run in (unbroken, broken)]
    for difference in compare(*steps):
        first.setdefault(difference.section, f"{difference.name}: {difference.what}")
    for rank in range(ranks):
        for section, what in compare_records(read_records(unbroken, rank), read_records(broken, rank)):
            first.setdefault(section, f"rank {rank}, {what}")
    return {part: first[section] for part, section in PARTS.items() if section in first}


def compare_records(unbroken: Sequence[Record], broken: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Find where a rank's records differ, as (section, what)."""
    for one, other in zip_longest(unbroken, broken):
        if one is None or other is None or one.step != other.step:
            steps = [f"step {record.step}" if record else "nothing" for record in (one, other)]
            yield "samples", f"{steps[0]} in the unbroken run, {steps[1]} in the broken one"
            return
        if one.samples != other.samples:
            yield "samples", f"step {one.step}: {one.samples} and {other.samples}"
        if one.loss.hex() != other.loss.hex():
            yield "losses", f"step {one.step}: {one.loss!r} and {other.loss!r}"


def resumed_from(run: Path) -> int:
    """The step that a run resumed from last; 0 if it never did."""
    loads = [event["step"] for event in read_events(run) if event["event"] == "load"]
    return int(str(loads[-1])) if loads else 0
