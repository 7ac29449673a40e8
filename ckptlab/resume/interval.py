"""How often to save: pure functions of what saves and failures cost. All times are in the same unit, seconds say.

A save that comes too often costs its stall, one that comes too rarely loses the work since the last one. J. T. Daly,
"A higher order estimate of the optimum checkpoint interval for restart dumps" (Future Generation Computer Systems 22, 2006),
which extends J. W. Young's sqrt(2 * stall * mtbf) (Communications of the ACM 17, 1974). Both take failures to come at random,
independent of each other and of what the run does.
"""

from math import exp, inf, sqrt

from ckptlab.errors import UsageError


def best_interval(stall: float, mtbf: float, write: float = 0.0) -> float:
    """Return how long to train between two saves, so that a run is expected to end soonest.

    Args:
        stall: how long training stands still for a save.
        mtbf: mean time between failures of the whole job; that of one machine divided by their number.
        write: how long it takes until a save is committed, where training goes on meanwhile; one is written at a time.

    Raises:
        UsageError: a time is negative, or `mtbf` is 0.
    """
    _check(stall, mtbf, write)
    if stall >= 2 * mtbf:
        return max(mtbf, write)
    half = stall / (2 * mtbf)
    return max(sqrt(2 * stall * mtbf) * (1 + sqrt(half) / 3 + half / 9) - stall, write)


def expected_overhead(interval: float, stall: float, mtbf: float, write: float = 0.0, restart: float = 0.0) -> float:
    """Return the time that is expected to be lost to saves and failures, per unit of training time.

    Daly's complete model: what is trained between two saves takes, in all,
    mtbf * exp(restart / mtbf) * (exp((interval + stall) / mtbf) - 1). Infinite where no end is in sight. A save
    that is still being written when a failure comes is lost too, so `write` counts as work that has to be done again.

    Args:
        interval: how long to train between two saves.
        stall: as in `best_interval`.
        mtbf: as there.
        write: as there.
        restart: how long it takes from a failure until training goes on.

    Raises:
        UsageError: a time is negative, or `interval` or `mtbf` is 0.
    """
    _check(stall, mtbf, write, restart)
    if not interval > 0:
        raise UsageError(f"an interval of {interval}: more than 0 is expected")
    try:
        return mtbf * exp((restart + write) / mtbf) * (exp((interval + stall) / mtbf) - 1) / interval - 1
    except OverflowError:  # it would never end
        return inf


def _check(stall: float, mtbf: float, *more: float) -> None:
    if not (mtbf > 0 and min(stall, *more) >= 0):
        raise UsageError(f"stall {stall}, mtbf {mtbf}, others {more}: times of at least 0 are expected, and an mtbf above 0")
