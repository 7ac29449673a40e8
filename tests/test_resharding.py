"""Promise 4 and the loader's half of promise 1: what one world saved, any other world loads, bitwise."""

from pathlib import Path

import pytest
from states import TOPOLOGIES, load_state, save_state

from ckptlab.ranks import World

PAIRS = [(source, target) for source, target in zip(TOPOLOGIES, TOPOLOGIES[6:] + TOPOLOGIES[:6], strict=True)]
PAIRS += [(("fsdp", 4), ("fsdp", n)) for n in (1, 2, 3, 8)] + [(("fsdp", n), ("fsdp", 4)) for n in (2, 3, 8)]
PAIRS += [((kind, 4), ("fsdp", n)) for kind in ("replicated x fsdp", "fsdp x tensor parallel") for n in (1, 2, 3)]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda topology: f"{topology[0]} {topology[1]}")
def test_a_step_loads_bitwise_into_another_topology(source: tuple[str, int], target: tuple[str, int], tmp_path: Path) -> None:
    with World(source[1]) as world:
        world.run(save_state, source[0], tmp_path, 5)
    with World(target[1]) as world:
        assert world.run(load_state, target[0], tmp_path / "step-00000005", 5) == [[]] * target[1]
