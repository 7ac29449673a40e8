"""What each rank did, step by step: `RUN/records/rank-N.jsonl`, one line a step.

    {"step": 7, "samples": [51, 4, 900, 17], "loss": "0x1.4c1ee80000000p+2"}

The loss is a float's exact hexadecimal form. A run is judged by these lines too: the same samples in the same order with the
same losses to the last bit. They are no part of a checkpoint; after a resume from step k the lines of later steps are cut off.
"""

import json
import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple, TextIO


class Record(NamedTuple):
    """One step of one rank."""

    step: int
    samples: list[int]
    loss: float


def open_records(run: Path, rank: int) -> TextIO:
    """Open this rank's file to add to it (every rank; no two share one)."""
    path = records_file(run, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", buffering=1)


def write_record(file: TextIO, step: int, samples: Sequence[int], loss: float) -> None:
    """Add a step. The line has left the process when this returns: a rank that is killed later loses nothing it finished."""
    file.write(json.dumps({"step": step, "samples": list(samples), "loss": loss.hex()}) + "\n")


def read_records(run: Path, rank: int) -> list[Record]:
    """Read one rank's file (any process)."""
    return [parse(line) for line in whole_lines(records_file(run, rank))]


def cut_records(run: Path, after: int, rank: int, world_size: int) -> None:
    """Cut off every step after the one that the run resumed from (every rank, before it writes).

    Rank r cuts the files r, r + world size, r + 2 * world size, …: what a larger world left before the resume is cut too, and
    no two ranks touch the same file.
    """
    for path in (run / "records").glob("rank-*.jsonl"):
        if int(path.stem.removeprefix("rank-")) % world_size == rank:
            kept = takewhile(lambda line: parse(line).step <= after, whole_lines(path))
            os.truncate(path, sum(len(line) for line in kept))


def records_file(run: Path, rank: int) -> Path:
    """Where a rank's records stand."""
    return run / "records" / f"rank-{rank}.jsonl"


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file; a last one that a killed rank did not finish is left out."""
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def parse(line: bytes) -> Record:
    """Read one line back, bit for bit."""
    values = json.loads(line)
    return Record(values["step"], values["samples"], float.fromhex(values["loss"]))
