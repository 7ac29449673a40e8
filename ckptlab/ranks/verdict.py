"""What went wrong on several ranks, told as one thing: which rank was the first, and what that did to the others. Pure."""

import signal
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from ckptlab.errors import RankLost, RankRaised
from ckptlab.ranks.answer import Raised

_ADVICE = "world.restart() starts all ranks afresh; what their variables held is lost"


class AllLines(Exception):
    """A rank's whole traceback: the cause of a `RankRaised` that shows the user's own lines only."""


def rank_raised(raised: Mapping[int, Raised], num_ranks: int) -> RankRaised:
    """Tell of the first rank that raised in full, of the others how many.

    Args:
        raised: by rank; not empty.
        num_ranks: how many ranks ran the task.
    """
    first = _first(raised)
    others = f" ({len(raised)} of {num_ranks} ranks raised; this was the first)" if len(raised) > 1 else ""
    error = RankRaised(f"rank {first} raised {raised[first].what}{others}\n\n{raised[first].own_lines}")
    if raised[first].all_lines != raised[first].own_lines:
        error.__cause__ = AllLines(f"on rank {first}:\n{raised[first].all_lines}")
    return error


def rank_lost(died: Mapping[int, str], silent: Mapping[int, bool], raised: Mapping[int, Raised], waited: str) -> RankLost:
    """Tell which ranks died, which did not answer, and what the others raised because of it.

    Args:
        died: how each dead rank ended ("was killed by SIGKILL").
        silent: the ranks that did not answer, and whether each is stopped.
        raised: what other ranks raised.
        waited: what the silent ranks did not answer ("within 60 s").
    """
    told = [f"rank {rank} {how}" for rank, how in died.items()]
    told += [f"rank {rank} is stopped and did not answer {waited}" for rank, stopped in silent.items() if stopped]
    running = [rank for rank, stopped in silent.items() if not stopped]
    if running:
        told.append(f"{name_ranks(running)} did not answer {waited}")
    if raised:
        first = _first(raised)
        told.append(f"{name_ranks(raised)} raised, first rank {first}: {raised[first].what}")
    return RankLost("; ".join(told) + f".\n{_ADVICE}", ranks=tuple(died or silent))


def first_to_fail(exit_codes: Sequence[int], raised: Mapping[int, Raised], seen: int) -> int:
    """Return the rank of a job that failed first, of all its ranks' ends.

    A rank that ended without a word is the cause of what others raised. The agent ends the rest with SIGTERM, so that this
    signal counts only for the rank that the agent has `seen` first.
    """
    signalled = [rank for rank, code in enumerate(exit_codes) if code < 0 and code != -signal.SIGTERM]
    exited = [rank for rank, code in enumerate(exit_codes) if code > 0]
    silent = [rank for rank in (*signalled, seen, *exited) if rank not in raised]
    return silent[0] if silent else _first(raised)


def name_ranks(ranks: Iterable[int]) -> str:
    """`name_ranks([1])` is "rank 1", of [0, 2] "ranks 0, 2", of [5, 0, 1, 2, 3] "ranks 0-3, 5"."""
    numbers = sorted(ranks)
    return f"rank{'s' if len(numbers) > 1 else ''} {in_runs(numbers)}"


def in_runs(ranks: Sequence[int], comma: str = ", ") -> str:
    """Name ascending ranks in few letters: "0", "0, 2", "0-3, 5"."""
    starts = [at for at, rank in enumerate(ranks) if at == 0 or ranks[at - 1] != rank - 1]
    runs = [ranks[begin:end] for begin, end in pairwise([*starts, len(ranks)])]
    return comma.join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _first(raised: Mapping[int, Raised]) -> int:
    return min(raised, key=lambda rank: raised[rank].at)
