"""Names of everything inside a run directory, spelled and read in this one place.

Only `parse_step` and `check_file_name` meet names that someone else wrote.
"""

import re
from typing import Literal

from ckptlab.errors import FormatError

MANIFEST = "manifest.json"
STATE = "state.json"
EVENTS = "events.jsonl"
LOCK = ".lock"
SHRINK_LOCK = ".shrink-lock"
PINNED = "pinned"
RUN_ID = ".run-id"
ROLLED_BACK = "rolled-back-to"
PREEMPTED = "PREEMPTED"
BUFFER = "buffer::"  # before the name of a buffer that differs between ranks, in a rank's file
SEPARATOR = "::"  # in a tensor's name in `optim`: `<state name>::<fqn>`
SECTIONS = ("model", "optim")
PIECES = "pieces"
FOLDERS = (*SECTIONS, "ranks", PIECES)
MAX_NAME_BYTES = 255


def step_name(step: int) -> str:
    """Name the directory of a committed step: 40 gives `step-00000040`."""
    return f"step-{step:08d}"


def parse_step(name: str) -> int | None:
    """Read the step from a directory's name; `None` when it is not spelled as `step_name` spells it."""
    match = re.fullmatch(r"step-([0-9]{8}|[1-9][0-9]{8,17})", name)
    return int(match[1]) if match else None


def temporary_name(step: int, nonce: str) -> str:
    """Name the directory in which a step is written before it is committed."""
    return f".tmp-{step_name(step)}-{nonce}"


def aside_name(kind: Literal["trash", "bad", "small", "was"], step: int, nonce: str) -> str:
    """Name the directory of what is no step: about to be deleted, not to be loaded; a small form, and what it replaces."""
    return f".{kind}-{step_name(step)}-{nonce}"


def parse_was(name: str) -> int | None:
    """Read the step from the name of one as it was before it was made small; `None` for any other."""
    match = re.fullmatch(r"\.was-step-([0-9]{8,18})-[0-9a-f]+", name)
    return int(match[1]) if match else None


def parse_aside(name: str) -> Literal["torn", "trash", "bad", "small", "was"] | None:
    """Tell what a directory with such a name is: see `temporary_name` and `aside_name`; `None` for any other."""
    for kind in ("torn", "trash", "bad", "small", "was"):
        if name.startswith(f".{'tmp' if kind == 'torn' else kind}-step-"):
            return kind
    return None


def rollback_nonce(to: int, nonce: str) -> str:
    """Name in an aside's nonce the step that a rollback went back to."""
    return f"back-to-{to}-{nonce}"


def parse_rollback(name: str) -> tuple[int, int] | None:
    """Read (to, step) from the name of a step that a rollback `to` an earlier one has set aside; `None` for any other."""
    match = re.fullmatch(r"\.bad-step-([0-9]{8,18})-back-to-([0-9]{1,18})-[0-9a-f]+", name)
    return (int(match[2]), int(match[1])) if match else None


def shard_file(section: str, number: int, count: int) -> str:
    """Name safetensors file `number` (from 1) of `count`, as Hugging Face does."""
    return f"{section}/{section}-{number:05d}-of-{count:05d}.safetensors"


def pieces_file(rank: int) -> str:
    """Name the file of one writer's pieces, where every writer has its own (`files="by_rank"`)."""
    return f"{PIECES}/rank-{rank:05d}.safetensors"


def small_file(section: str, number: int) -> str:
    """Name file `number` (from 1) of the tensors of a section that were made small."""
    return f"{PIECES}/small-{section}-{number:05d}.bin"


def index_file(section: str) -> str:
    """Name Hugging Face's index: which tensor is in which file."""
    return f"{section}/{section}.safetensors.index.json"


def rank_tensors_file(rank: int) -> str:
    """Name the file of the tensors that belong to one rank."""
    return f"ranks/rank-{rank:05d}.safetensors"


def rank_state_file(rank: int) -> str:
    """Name the file of the state that belongs to one rank."""
    return f"ranks/rank-{rank:05d}.json"


def check_file_name(name: str) -> None:
    r"""Refuse a file name that could lead out of the step, or that a terminal or file system would not take.

    Good are `state.json` and one printable name in a known folder: `model/a.json`, not `model/../a`, `a/b/c`, `model/\x1b[2J`.
    """
    folder, _, base = name.rpartition("/")
    known = folder in FOLDERS and base not in ("", ".", "..") and "\\" not in base
    if name != STATE and not (known and base.isprintable() and len(base.encode()) <= MAX_NAME_BYTES):
        raise FormatError(
            f"file name {name[:300]!a}: expected {STATE!r} or one plain name in {', '.join(FOLDERS)}; do not use this step"
        )
