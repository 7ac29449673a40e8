"""What a run's events add up to: how long training stood still for saves, what resumes cost, whether saves get slower."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import isfinite
from statistics import median

DRIFT_SAVES = 5  # so many of the first and of the last saves are compared


@dataclass(frozen=True, slots=True)
class Resume:
    """A step that was loaded. `lost_seconds` is the time since its save, or the load before: work in vain, and the restart."""

    step: int
    lost_seconds: float | None
    refused: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A step that a gate kept from being saved."""

    step: int
    why: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Seconds, bytes and shares; None where the events do not say."""

    committed: int
    failed: int
    refused: tuple[Refusal, ...]  # by a gate, in the order of the events
    num_bytes: int
    stall: float | None  # of a save, the median
    stall_share: float | None  # of the time between saves with no resume between them; waits for saves in the background count
    first_saves: float | None  # seconds of one, the median of the first five
    last_saves: float | None
    resumes: tuple[Resume, ...]


def summarize(events: Iterable[Mapping[str, object]]) -> Summary:
    """Sum up the events of a run, in their order; what is not as it should be in one of them is left out.

    Saves count that are in the run's directory; what those into tiers on the nodes cost is in the stall's share alone.
    """
    known = [event for event in events if event.get("event") in ("save", "load", "wait") and _when(event) is not None]
    saves = [event for event in known if event["event"] == "save" and "tier" not in event]
    committed = [event for event in saves if event.get("outcome") == "committed"]
    stalls, seconds = _numbers(committed, "stall"), [taken for event in committed if (taken := _seconds(event)) is not None]
    return Summary(
        committed=len(committed),
        failed=sum(event.get("outcome") == "failed" for event in saves),
        refused=tuple(_refusals(saves)),
        num_bytes=sum(int(number) for number in _numbers(committed, "bytes")),
        stall=median(stalls) if stalls else None,
        stall_share=_stall_share(known),
        first_saves=median(seconds[:DRIFT_SAVES]) if seconds else None,
        last_saves=median(seconds[-DRIFT_SAVES:]) if seconds else None,
        resumes=tuple(_resumes(known)),
    )


def _refusals(saves: Iterable[Mapping[str, object]]) -> Iterable[Refusal]:
    for event in saves:
        step = event.get("step")
        if event.get("outcome") == "refused" and isinstance(step, int):
            yield Refusal(step, str(event.get("why")))


def _stall_share(known: list[Mapping[str, object]]) -> float | None:
    stood, passed = 0.0, 0.0
    for before, event in pairwise(known):
        if "load" not in (before["event"], event["event"]):
            stood += sum(_numbers([event], "stall"))
            passed += _between(before, event)
    return stood / passed if passed > 0 else None


def _resumes(known: list[Mapping[str, object]]) -> Iterable[Resume]:
    since: dict[object, Mapping[str, object]] = {}  # by step: its save, or the last load of it
    for event in known:
        step = event.get("step")
        if event.get("outcome") == "committed" and isinstance(step, int):
            since[step] = event
        if event["event"] == "load" and isinstance(step, int):
            refused = event.get("refused")
            members = refused if isinstance(refused, list) else []
            numbers = (member.get("step") for member in members if isinstance(member, dict))
            lost = _between(since[step], event) if step in since else None
            yield Resume(step, lost, tuple(number for number in numbers if isinstance(number, int)))
            since[step] = event


def _seconds(event: Mapping[str, object]) -> float | None:
    phases = event.get("seconds")
    return sum(_numbers([phases], *phases)) if isinstance(phases, dict) else None


def _numbers(events: Iterable[Mapping[str, object]], *names: str) -> list[float]:
    found = (event.get(name) for event in events for name in names)
    return [value for value in found if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)]


def _between(before: Mapping[str, object], event: Mapping[str, object]) -> float:
    begin, end = _when(before), _when(event)
    return max((end - begin).total_seconds(), 0.0) if begin and end else 0.0


def _when(event: Mapping[str, object]) -> datetime | None:
    """Return the time of an event; None when it has none with a time zone."""
    try:
        time = datetime.fromisoformat(str(event.get("at")))
    except ValueError:
        return None
    return time if time.tzinfo else None
