"""The order of a save

Several ranks save a new step of a run that has one old step. You get the eight parts of the save, in a wrong order. Return
them in an order in which nothing can be lost, after whichever part the power is cut:

- "write": every rank writes its files, into a temporary directory; "sync": every rank calls fsync on them;
- "wait": rank 0 waits until every rank has done what comes before;
- "manifest": rank 0 writes, durably, a list of the files that the ranks have told it of;
- "rename": rank 0 gives the directory its final name; "sync parent": it calls fsync on the run's directory;
- "delete old": rank 0 deletes the old step; "report": it says "saved".
"""

import random
from collections.abc import Callable, Iterator
from itertools import chain, combinations

from ckptlab.course.exercise import Case

MINUTES = 5
WORLD_SIZES = (1,)
IN_KERNEL = True
HINTS = (
    "When does the new step exist for a reader? All that it consists of must be on the disk before that.",
    "Rank 0 may be the fastest: what may it not do before it has waited? And what must the others have done by then?",
    "The old step goes when the new one cannot be lost any more. A new name is safe after fsync on the directory it stands in.",
)

_TORN = "a step that looks whole and is not"
_NONE = "no whole step"
_LOST = "'saved' was said, and the step is not there"


def order_of_a_save(parts: list[str]) -> list[str]:
    """Return the parts of a save in an order in which nothing can be lost."""
    raise NotImplementedError


def solution(parts: list[str]) -> list[str]:
    return ["write", "sync", "wait", "manifest", "rename", "sync parent", "delete old", "report"]


def wrong_name_before_bytes(parts: list[str]) -> list[str]:
    """The final name may reach the disk before the files do: every rank's fsync has to come before the wait and the rename."""
    return ["write", "wait", "manifest", "rename", "sync", "sync parent", "delete old", "report"]


def wrong_does_not_wait(parts: list[str]) -> list[str]:
    """With equal ranks it works; when rank 0 is the fastest, it commits what another rank has not yet written.

    It has to wait before it writes the manifest, and before it renames.
    """
    return ["write", "sync", "manifest", "rename", "sync parent", "wait", "delete old", "report"]


def wrong_old_one_goes_first(parts: list[str]) -> list[str]:
    """The old step goes while the new one can still be lost: a power cut at that moment leaves none."""
    return ["delete old", "write", "sync", "wait", "manifest", "rename", "sync parent", "report"]


def wrong_name_is_not_durable(parts: list[str]) -> list[str]:
    """After a rename the new name is in memory. Until fsync on the run's directory a power cut can undo it."""
    return ["write", "sync", "wait", "manifest", "rename", "delete old", "report", "sync parent"]


def check(answer: Callable[[list[str]], list[str]], rank: int, world_size: int) -> Iterator[Case]:
    parts = ["delete old", "manifest", "rename", "report", "sync", "sync parent", "wait", "write"]
    given = random.Random("4.1").sample(parts, len(parts))
    found = answer(list(given))
    if not isinstance(found, list) or sorted(map(str, found)) != parts:
        yield Case(found, given, where="all eight parts, each once, in any order")
        return
    for speed, is_slow in (("equally fast ranks", False), ("a slow rank", True)):
        faults = [(part, fault) for at, part in enumerate(found) for fault in _cut_power(found[: at + 1], is_slow)]
        after = f", the power is cut after {faults[0][0]!r}" if faults else ""
        yield Case(sorted({fault for _, fault in faults}), [], where=f"{speed}{after}; what may be found then")


def _cut_power(done: list[str], is_slow: bool) -> set[str]:
    """Tell what may be wrong on the disk when the power is cut after these parts."""
    there, synced, lists_all = set[str](), set[str](), False
    for at, part in enumerate(done):
        match part:
            case "write":
                there |= {"files"} if is_slow else {"files", "files of the slow rank"}
            case "sync":
                synced |= there & {"files", "files of the slow rank"}
            case "wait":  # the slow rank does now what comes before
                own = [before for before in done[:at] if before in ("write", "sync")]
                there |= {"files of the slow rank"} if "write" in own else set()
                synced |= {"files of the slow rank"} if own == ["write", "sync"] else set()
            case "manifest":
                lists_all = {"files", "files of the slow rank"} <= there
                there, synced = there | {part}, synced | {part}
            case "rename" | "delete old":
                there |= {part}
            case "sync parent":
                synced |= there & {"rename", "delete old"}
    perhaps = sorted(there - synced)
    kept = chain.from_iterable(combinations(perhaps, count) for count in range(len(perhaps) + 1))
    return {fault for some in kept for fault in _faults(synced | set(some), lists_all, "report" in done)}


def _faults(on_disk: set[str], lists_all: bool, reported: bool) -> Iterator[str]:
    looks_whole = {"rename", "manifest"} <= on_disk
    is_whole = looks_whole and lists_all and {"files", "files of the slow rank"} <= on_disk
    if looks_whole and not is_whole:
        yield _TORN
    if "delete old" in on_disk and not is_whole:
        yield _NONE
    if reported and not is_whole:
        yield _LOST
