"""A small bank of lab 02 with every type of question, for tests of what is done with banks. Its keys are plain to see."""

import shutil
from pathlib import Path

from ckptlab.course.content import LABS, QUIZZES
from ckptlab.course.quiz.bank import Bank, read
from ckptlab.course.quiz.draw import Paper

TEXT = """\
bank: "02"
title: Shards
version: 3
questions:
  - id: last-rank
    type: single
    level: apply
    read: "02#boxes"
    variants:
      - {rows: 13, ranks: 4, chunk: 1, spread: 3, rest: 4}
      - {rows: 11, ranks: 4, chunk: 2, spread: 2.5, rest: 5}
    ask: A tensor has {rows} rows under `Shard(0)` on {ranks} ranks. How many rows does the last rank own?
    options:
      - {id: chunk, text: "{chunk}", right: true, because: "`torch.chunk` rounds the length up."}
      - {id: spread, text: "{spread}", because: "That is an even split, which no rank can own."}
      - {id: rest, text: "{rest}", because: "That rounds down; `torch.chunk` rounds up."}
    proof: |
      import torch
      pieces = torch.arange(rows).chunk(ranks)
      chunk = len(pieces[-1]) if len(pieces) == ranks else 0
  - id: replicas
    type: multiple
    level: explain
    read: "02#bytes"
    ask: Four ranks hold the same bias. Which plans write it correctly?
    options:
      - {id: one, text: Rank 0 writes all of it., right: true, because: "Every byte is written once."}
      - {id: quarters, text: Each rank writes its own quarter., right: true, because: "The work is shared."}
      - {id: none, text: Nobody writes it., because: "A bias is trained, and lost then."}
    source: ckptlab/checkpoint/plan.py
  - id: bytes-per-rank
    type: numeric
    level: apply
    read: "02#one-tensor-on-four-ranks"
    variants:
      - {billions: 7, ranks: 8, gigabytes: 10.5}
      - {billions: 13, ranks: 16, gigabytes: 9.75}
    ask: "{billions} billion parameters with Adam over {ranks} ranks. How many GB does each rank write?"
    answer: "{gigabytes}"
    unit: GB
    within: {relative: 0.02}
    because: "12 bytes a parameter, divided by the ranks."
    near:
      - {value: "{billions} * 4 / {ranks}", because: "Only the weights."}
    proof: |
      gigabytes = billions * (4 + 4 + 4) / ranks
  - id: placement
    type: text
    level: recall
    read: "02#why-one-machine-is-not-enough"
    ask: Which placement says that every rank holds the whole tensor?
    accept: ["Replicate()", Replicate, Ịkọ]
    because: "It is not cut on this axis."
    near:
      - {value: Partial, because: "A term of a sum."}
    source: ckptlab/checkpoint/tensors.py
  - id: steps-of-a-save
    type: order
    level: explain
    read: "02#held-twice-written-once"
    ask: Put the steps of a save in order.
    items: [write, sync, rename, sync the parent]
    because: "The rename is the commit."
    source: ckptlab/checkpoint/save.py
  - id: runs
    type: match
    level: apply
    read: "02#what-goes-wrong-a-placement-that-lies"
    ask: A matrix of 8 rows and 6 columns on 2 ranks. How many runs of bytes has a shard?
    pairs:
      - {left: "`Shard(0)`", right: "1"}
      - {left: "`Shard(1)`", right: "8"}
      - {left: "`Replicate()`", right: "1"}
    because: "Rows are neighbours in a file."
    proof: |
      from ckptlab.format import Box, byte_runs
      pairs = [str(len(list(byte_runs((8, 6), box, 4)))) for box in (Box((0, 0), (4, 6)), Box((0, 0), (8, 3)))]
  - id: rows-of-a-rank
    type: exercise
    level: apply
    read: "02#exercise-21-the-rows-of-a-rank-6-minutes"
    exercise: "2.1"
"""


def write_bank(folder: Path, text: str = TEXT, name: str = "02") -> Path:
    """Put a bank into a folder, as its file."""
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def small_paper(folder: Path, text: str = TEXT) -> Paper:
    """Return the bank as a quiz."""
    bank: Bank = read(write_bank(folder, text))
    return Paper(name=bank.name, title=bank.title, banks=(bank,))


def put_course(folder: Path, text: str = TEXT) -> None:
    """Fill a folder with the labs and this bank alone, for a course that is checked out there."""
    shutil.copytree(LABS, folder / "labs", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "quizzes").mkdir()
    shutil.copy(QUIZZES / "schema.json", folder / "quizzes")
    write_bank(folder / "quizzes", text)
