"""What all ranks have to say alike when they make a checkpointer: otherwise some would wait for others that never come."""

from collections.abc import Mapping, Sequence

from ckptlab.errors import UsageError

NAMED = 8  # so many ranks are named of those that have a value


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
