"""`ckptlab show RUN`: what a run's events add up to, reckoned by hand."""

import json
from pathlib import Path

from ckptlab.cli.main import run


def save(minute: int, step: int, stall: float, write: float, outcome: str = "committed") -> dict[str, object]:
    times = {"at": f"2026-12-01T10:{minute:02}:00.000Z", "stall": stall, "seconds": {"plan": 0.5, "write": write}}
    return {"v": 1, "event": "save", "step": step, "outcome": outcome, "bytes": 1000, **times}


EVENTS = [
    save(0, 10, stall=1, write=2),
    save(1, 20, stall=3, write=2),
    {"v": 1, "at": "2026-12-01T10:01:00.500Z", "event": "delete", "step": 10},
    save(2, 30, stall=2, write=2, outcome="failed"),
    save(3, 40, stall=4, write=2),
    {"v": 1, "at": "2026-12-01T10:07:30.000Z", "event": "load", "step": 20, "refused": [{"step": 40, "why": "a flipped bit"}]},
    save(10, 30, stall=3, write=9.5),
    save(11, 40, stall=5, write=9.5),
    {"v": 1, "at": "2026-12-01T10:11:30.000Z", "event": "wait", "step": 40, "stall": 2},  # for a save in the background
    save(12, 50, stall=6, write=9.5),
    {**save(13, 60, stall=8, write=0, outcome="refused"), "why": "rank 1: the loss is 99"},
]


def test_show_of_a_run_says_what_saves_and_resumes_have_cost(tmp_path: Path, capsys) -> None:
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    assert run(["show", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "committed": 6,
        "failed": 1,
        "refused": [{"step": 60, "why": "rank 1: the loss is 99"}],
        "num_bytes": 6000,
        "stall": 3.5,  # of 1, 3, 4, 3, 5, 6
        "stall_share": 30
        / 360,  # 3 + 2 + 4 and 5 + 2 + 6 + 8 s stood in 3 and 3 minutes: what a resume lies between does not count
        "first_saves": 2.5,
        "last_saves": 10.0,
        "resumes": [{"step": 20, "lost_seconds": 390.0, "refused": [40]}],
    }
    assert run(["show", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "refused: 40" in said
    assert "step 60: rank 1: the loss is 99" in said


def test_events_that_are_not_as_they_should_be_cost_only_themselves(tmp_path: Path, capsys) -> None:
    odd = [{}, {"event": "save"}, {"event": "load", "at": "yesterday"}, {"event": "load", "at": "2026-12-01", "step": 3},
           {**EVENTS[0], "stall": "long", "seconds": [1], "bytes": True}, {**EVENTS[5], "refused": 7}, [1],
           {**EVENTS[0], "stall": float("inf")}, {**EVENTS[-1], "step": "six"}]  # fmt: skip
    (tmp_path / "events.jsonl").write_text(
        "".join(json.dumps(event) + "\n" for event in odd) + "[" * 100_000 + '\n{"event": "sa'
    )
    assert run(["show", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["committed"], told["num_bytes"], told["stall"], len(told["resumes"])) == (2, 1000, None, 1)
