"""The interval between saves, against runs with failures that are played, and against the best of many tried."""

import numpy as np
import pytest

from ckptlab.errors import UsageError
from ckptlab.resume.interval import best_interval, expected_overhead


def played(interval: float, stall: float, mtbf: float, restart: float, num_saves: int) -> float:
    """Play a run of so many saves, with failures at random; return the time lost per unit of training time."""
    random = np.random.default_rng(0)
    time, saved, next_failure = 0.0, 0, random.exponential(mtbf)
    while saved < num_saves:
        if time + interval + stall <= next_failure:
            time, saved = time + interval + stall, saved + 1
            continue
        time = next_failure
        next_failure = time + random.exponential(mtbf)
        while time + restart > next_failure:  # fails again while it starts
            time = next_failure
            next_failure = time + random.exponential(mtbf)
        time += restart
    return time / (num_saves * interval) - 1


@pytest.mark.parametrize(("interval", "stall", "restart"), [(0.05, 0.01, 0.02), (0.5, 0.1, 0.3), (1.5, 0.02, 0.0)])
def test_the_expected_overhead_is_that_of_runs_that_were_played(interval: float, stall: float, restart: float) -> None:
    seen = played(interval, stall, 1.0, restart, 60_000)
    assert expected_overhead(interval, stall, 1.0, restart=restart) == pytest.approx(seen, rel=0.03)


@pytest.mark.parametrize("stall", [1e-6, 1e-3, 0.05, 0.4])
def test_no_other_interval_loses_noticeably_less(stall: float) -> None:
    best = best_interval(stall, mtbf=1.0)
    tried = [expected_overhead(interval, stall, mtbf=1.0) for interval in best * np.geomspace(0.1, 10, 1001)]
    assert expected_overhead(best, stall, mtbf=1.0) <= min(tried) * 1.001


def test_a_save_is_never_begun_before_the_last_one_can_be_written() -> None:
    assert best_interval(0.001, mtbf=3600, write=40) == 40


def test_times_that_cannot_be_are_refused() -> None:
    for wrong in ((-1, 10), (1, 0), (1, -5), (float("nan"), 10)):
        with pytest.raises(UsageError, match="expected"):
            best_interval(*wrong)
    with pytest.raises(UsageError, match="interval"):
        expected_overhead(0, 1, 10)
