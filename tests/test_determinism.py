"""Promise 5: a run that is killed and resumed is bitwise the run that was never broken."""

import json
from pathlib import Path

import pytest
from jobs import GLOBAL_BATCH, NUM_SAMPLES, train, trained

from ckptlab.errors import RankLost
from ckptlab.ranks import World
from ckptlab.steps import compare, list_steps

STEPS_IN_EPOCH = NUM_SAMPLES // GLOBAL_BATCH
LAST = 2 * STEPS_IN_EPOCH + 2
KILLS = [2, STEPS_IN_EPOCH // 2 + 1, STEPS_IN_EPOCH, STEPS_IN_EPOCH + 1, STEPS_IN_EPOCH + 2]
"""Killed in the step after the first, a middle, the last but one and the last batch of an epoch, and again in the next."""


@pytest.mark.parametrize(("workers", "accumulate"), [(0, 1), (2, 1), (0, 3), (2, 3)])
def test_a_run_killed_again_and_again_is_bitwise_the_run_that_was_never_broken(
    workers: int, accumulate: int, tmp_path: Path
) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    with World(2) as world:
        world.run(train, unbroken, LAST, workers, accumulate)
        for step in KILLS:
            with pytest.raises(RankLost):
                world.run(train, broken, LAST, workers, accumulate, kill_at=step)
            world.restart()
        world.run(train, broken, LAST, workers, accumulate)
    assert [step.number for step in list_steps(broken)] == list(range(1, LAST + 1))
    for a, b in zip(list_steps(unbroken), list_steps(broken), strict=True):
        assert list(compare(a, b)) == []
    lines = [trained(broken, rank) for rank in range(2)]
    assert lines == [trained(unbroken, rank) for rank in range(2)]
    first, second = (epoch_samples(lines, range(e * STEPS_IN_EPOCH + 1, (e + 1) * STEPS_IN_EPOCH + 1)) for e in (0, 1))
    assert len(set(first)) == len(first) == STEPS_IN_EPOCH * GLOBAL_BATCH, "a sample was trained on twice, or left out"
    assert first != second, "both epochs had the same order"


def epoch_samples(lines: list[dict[int, str]], steps: range) -> list[int]:
    return [sample for step in steps for rank in lines for sample in json.loads(rank[step])["samples"]]
