"""What may retention delete

`steps` are the steps of a run, in any order: `step.number`, `step.whole`, `step.pinned` (a person wants to keep it). Return the
numbers of those that may be deleted, sorted. Stay must the newest `keep_last` whole steps; those whose number is a multiple of
`keep_every`, unless that is None; those that are pinned; and those that are not whole, for a person to look at.
"""

import functools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from ckptlab.checkpoint import Contents, save
from ckptlab.course.exercise import Case
from ckptlab.steps import list_steps
from ckptlab.steps.retention import retire

MINUTES = 5
WORLD_SIZES = (1,)
HINTS = (
    "Which steps can be loaded? Only those can be among the newest three. Sort them by number first.",
    "The newest ones of a sorted list: `whole[-keep_last:]`. They are counted among all whole steps, whatever else keeps them.",
    "Then go through the rest, and leave out what is pinned or has `step.number % keep_every == 0`.",
)


class Step(NamedTuple):
    """What is known of a step."""

    number: int
    whole: bool
    pinned: bool


def may_go(steps: list[Step], keep_last: int, keep_every: int | None) -> list[int]:
    """Return the sorted numbers of the steps that may be deleted."""
    raise NotImplementedError


def solution(steps: list[Step], keep_last: int, keep_every: int | None) -> list[int]:
    whole = sorted(step for step in steps if step.whole)
    older = [step for step in whole[:-keep_last] if not step.pinned]
    return [step.number for step in older if keep_every is None or step.number % keep_every != 0]


def wrong_torn_ones_count(steps: list[Step], keep_last: int, keep_every: int | None) -> list[int]:
    """A step that is not whole took the place of one that is. After a bad week you keep the newest three, and can load none."""
    older = [step for step in sorted(steps)[:-keep_last] if step.whole and not step.pinned]
    return [step.number for step in older if keep_every is None or step.number % keep_every != 0]


def wrong_torn_ones_go(steps: list[Step], keep_last: int, keep_every: int | None) -> list[int]:
    """A step that is not whole is a trace of what went wrong, and may hold what can be rescued: a person decides."""
    newest = sorted(step for step in steps if step.whole)[-keep_last:]
    older = [step for step in sorted(steps) if step not in newest and not step.pinned]
    return [step.number for step in older if keep_every is None or step.number % keep_every != 0]


def wrong_kept_ones_do_not_count(steps: list[Step], keep_last: int, keep_every: int | None) -> list[int]:
    """The newest ones are counted among all whole steps, also those that are kept for another reason: yours keeps more."""
    others = [step for step in sorted(steps) if step.whole and not step.pinned]
    others = [step for step in others if keep_every is None or step.number % keep_every != 0]
    return [step.number for step in others[:-keep_last]]


def check(answer: Callable[[list[Step], int, int | None], list[int]], rank: int, world_size: int) -> Iterator[Case]:
    for steps, keep_last, keep_every, expected in _cases():
        torn = sorted(step.number for step in steps if not step.whole)
        pinned = [step.number for step in steps if step.pinned]
        where = f"steps {sorted(step.number for step in steps)}, of which {torn} not whole and {pinned} pinned, "
        where += f"with keep_last={keep_last} and keep_every={keep_every}"
        yield Case(answer(list(steps), keep_last, keep_every), expected, where=where)


@functools.cache  # one for all answers
def _cases() -> list[tuple[list[Step], int, int | None, list[int]]]:
    """Draw runs, and see on the disk what goes."""
    draw, cases = random.Random("4.3"), []
    with TemporaryDirectory() as folder:
        for number in range(10, 90, 10):
            save(Path(folder) / "all", number, Contents(model={"weight": torch.ones(1)}, state={"step": number}))
        for keep_last, keep_every in ((3, None), (2, None), (2, 40), (1, 30), (3, 20)):
            numbers = draw.sample(range(10, 90, 10), 7)
            steps = [Step(number, number not in numbers[:2], number == numbers[2]) for number in numbers]
            gone = _see(Path(folder), steps, keep_last, keep_every)
            cases.append((draw.sample(steps, len(steps)), keep_last, keep_every, gone))
    return cases


def _see(folder: Path, steps: list[Step], keep_last: int, keep_every: int | None) -> list[int]:
    """Make such a run, let retention do its work, and tell what is gone."""
    run = folder / "run"
    for step in steps:
        path = run / f"step-{step.number:08}"
        shutil.copytree(folder / "all" / path.name, path)
        if not step.whole:
            (path / "manifest.json").unlink()
        if step.pinned:
            (path / "pinned").touch()
    retire(run, keep_last, keep_every, just_saved=max(step.number for step in steps if step.whole))
    left = {step.number for step in list_steps(run)}
    shutil.rmtree(run)
    return sorted({step.number for step in steps} - left)
