"""What all ranks have to say alike when they make a checkpointer: otherwise some would wait for others that never come."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from ckptlab.errors import UsageError
from ckptlab.tiers import NodeTier, ObjectStore

NAMED = 8  # so many ranks are named of those that have a value


OWN = ("self", "run", "gate", "on_event")  # a path may be another one on each rank; functions cannot be compared


def alike(arguments: Mapping[str, object]) -> dict[str, str]:
    """Return, as text by name, the arguments of a `Checkpointer` that all ranks must give alike."""
    told = {name: repr(value) for name, value in arguments.items() if name not in OWN}
    return {**told, "gate": "None" if arguments["gate"] is None else "given"}


def check_alike(told: Sequence[Mapping[str, str]]) -> None:
    """Compare the settings of all ranks, as text by name (coordinator).

    Raises:
        UsageError: some differ; it says which rank has what.
    """
    differing = []
    for name in told[0]:
        ranks: dict[str, list[int]] = {}
        for rank, settings in enumerate(told):
            ranks.setdefault(settings[name], []).append(rank)
        if len(ranks) > 1:
            differing.append(f"{name} is " + ", ".join(f"{value} on {_named(having)}" for value, having in ranks.items()))
    if differing:
        raise UsageError(f"Checkpointer: {'; '.join(differing)}; give every rank the same")


def _named(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - NAMED} more" if len(ranks) > NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:NAMED]))}{more}"


def checked(tiers: object) -> tuple[NodeTier | ObjectStore, ...]:
    """Return the tiers; raise `UsageError` when they are none."""
    found = tuple(tiers) if isinstance(tiers, Sequence) and not isinstance(tiers, str) else (tiers,)
    for tier in found:
        if not isinstance(tier, NodeTier | ObjectStore) or not isinstance(tiers, Sequence):
            raise UsageError(
                f"tiers={tiers!r}: a list of ckptlab.tiers' Memory(...), Local(...) and ObjectStore(...) is expected"
            )
    return found


def check_apart(run: Path, tiers: Sequence[NodeTier | ObjectStore]) -> None:
    """Raise `UsageError` when a place for steps is another one, or in it."""
    places = [run, *(tier.directory if isinstance(tier, NodeTier) else tier.run for tier in tiers)]
    for one, other in combinations(places, 2):
        if isinstance(one, Path) and isinstance(other, Path):
            whole, part = sorted((one.absolute(), other.absolute()), key=lambda path: len(path.parts))
            if part.is_relative_to(whole):
                raise UsageError(
                    f"{one} and {other} are one place, or one in the other; give every tier a directory of its own"
                )
        elif str(one) == str(other):
            raise UsageError(f"{one} is there twice; give every tier an address of its own")
