"""Promise 6: saving changes nothing in the run."""

from pathlib import Path

from jobs import train, trained

from ckptlab.ranks import World
from ckptlab.steps import compare, newest_step


def test_a_run_that_saves_every_step_is_bitwise_the_run_that_saves_only_at_its_end(tmp_path: Path) -> None:
    often, once = tmp_path / "often", tmp_path / "once"
    with World(2) as world:
        world.run(train, often, 6, every=1)
        world.restart()
        world.run(train, once, 6, every=None)
    a, b = newest_step(often), newest_step(once)
    assert a is not None
    assert b is not None
    assert (a.number, list(compare(a, b))) == (6, [])
    assert [trained(often, rank) for rank in range(2)] == [trained(once, rank) for rank in range(2)]
