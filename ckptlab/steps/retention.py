"""Which old steps go, on a disk and in a store. A committed step that is not whole never counts and never goes: a person's.

What was never committed, or is deleted by half, has another name on a disk and goes at the next start. In a store it has the
name of a step, and goes when a newer one is whole.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from ckptlab.errors import UsageError
from ckptlab.format.names import PINNED
from ckptlab.steps.events import WriteEvent, append_event
from ckptlab.steps.housekeeping import remove_from_store, set_aside
from ckptlab.steps.steps import Step, list_steps
from ckptlab.storage import ObjectPath, posix, store


def check_rule(keep_last: int | None, keep_every: int | None) -> None:
    """Refuse a rule by which the newest whole step could go, or that is no number of steps."""
    if any(number is not None and number < 1 for number in (keep_last, keep_every)):
        raise UsageError(
            f"keep_last={keep_last}, keep_every={keep_every}: each is at least 1, or None; the newest step always stays"
        )


def to_retire(steps: Sequence[Step], keep_last: int, keep_every: int | None, pinned: Collection[int]) -> list[Step]:
    """Choose the steps to delete: whole, not pinned, no multiple of `keep_every`, not among the newest `keep_last` whole ones.

    Steps 10, 20 (not whole), 30, 40 with `keep_last=2`: 10 goes, unless one that stays is stored against it.
    """
    whole = sorted((step for step in steps if step.whole), key=lambda step: step.number)
    kept = {step.number for step in whole if keep_every is not None and step.number % keep_every == 0} | set(pinned)
    going = {step.number for step in whole[:-keep_last]} - kept
    for step in sorted(steps, key=lambda step: -step.number):  # what a step is stored against is an earlier one
        if step.number not in going and step.manifest is not None:
            going.discard(-1 if step.manifest.base is None else step.manifest.base)
    return [step for step in whole if step.number in going]


def retire(
    run: Path,
    keep_last: int | None,
    keep_every: int | None,
    just_saved: int,
    *,
    in_use: Collection[int] = (),
    write_event: WriteEvent | None = None,
) -> list[int]:
    """Delete the steps that are to go, never the one just saved nor one in use, and give back their numbers (coordinator).

    Each is first renamed: a process killed while it deletes leaves trash, never half a step. An event of each goes to
    `write_event`; None appends it to the run's.
    """
    if keep_last is None:
        return []
    steps, write_event = list_steps(run), write_event or partial(append_event, run)
    retired = to_retire(steps, keep_last, keep_every, _pinned(steps) | {just_saved, *in_use})
    rule = f"keep_last={keep_last}" + (f", keep_every={keep_every}" if keep_every is not None else "")
    for step in retired:
        posix.remove_tree(set_aside(step.path, "trash"))
        write_event({"event": "delete", "step": step.number, "outcome": "deleted", "rule": rule})
    return [step.number for step in retired]


def retire_in_store(run: ObjectPath, keep_last: int | None, just_pushed: int) -> Iterator[int]:
    """Delete the steps in a store that are to go, never the one just pushed; give each number when it is gone (coordinator).

    With them goes what no manifest makes a step, and is older than the newest whole one.
    """
    if keep_last is None:
        return
    steps = list_steps(run)
    newest = max((step.number for step in steps if step.whole), default=0)
    left = [step for step in steps if step.torn and step.number < newest]
    for step in (*to_retire(steps, keep_last, None, _pinned(steps) | {just_pushed}), *left):
        remove_from_store(run / step.path.name)
        yield step.number


def _pinned(steps: Sequence[Step]) -> set[int]:
    return {step.number for step in steps if step.whole and PINNED in store.list_names(step.path)}
