"""`every="auto"`: rank 0 measures and decides, all ranks save at the same steps; how often follows from the failures."""

import json
from pathlib import Path

import pytest
import torch

from ckptlab.errors import UsageError
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState

RARE, CONSTANT = 1e9, 1e-12  # hours between failures


def steps_saved(run: Path, mtbf_hours: float) -> list[int]:
    model = torch.nn.Linear(2, 2)
    state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()))
    saved = []
    with Checkpointer(run, every="auto", mtbf_hours=mtbf_hours, keep_last=2) as checkpointer:
        first = checkpointer.resume(state)
        for state.step in range(first + 1, first + 31):
            if checkpointer.save_if_due(state) is not None:
                saved.append(state.step)
    return saved


def decisions(run: Path) -> list[dict[str, float]]:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "interval"]


def test_two_saves_are_measured_and_then_it_depends_on_how_often_failures_come(tmp_path: Path) -> None:
    with World(2) as world:
        rare = world.run(steps_saved, tmp_path / "rare", RARE)
        constant = world.run(steps_saved, tmp_path / "constant", CONSTANT)
        again = world.run(steps_saved, tmp_path / "rare", RARE)
    assert rare == [[10, 20]] * 2
    assert constant == [[10, 20, *range(21, 31)]] * 2
    assert again == [[30, 40]] * 2, "a resumed run measures anew"
    first, second, *_ = decisions(tmp_path / "rare")
    assert (first["step"], first["steps"], second["step"]) == (10, 10, 20)
    assert second["seconds"] > 3600
    assert 0 < second["overhead"] < 1e-3
    assert [event["steps"] for event in decisions(tmp_path / "constant")] == [10, *[1] * 11]


def test_auto_needs_the_time_between_failures_and_nothing_else_takes_it(tmp_path: Path) -> None:
    for wrong in (
        {"every": "auto"},
        {"every": 5, "mtbf_hours": 4},
        {"every": "auto", "mtbf_hours": 0},
        {"every": 0},
        {"every": "often"},
    ):
        with pytest.raises(UsageError, match="every="):
            Checkpointer(tmp_path, **wrong)
