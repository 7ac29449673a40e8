"""The demo: two runs, one broken and brought back; equal when they are, and the difference by name when they are not."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckptlab.cli.main import run
from ckptlab.errors import StepError, UsageError
from ckptlab.train.demo import demo as do_demo
from ckptlab.train.demo import fresh_folder, schedule
from ckptlab.train.report import PARTS, DemoReport, find_differences

RANKS, STEPS = 2, 4
SMALL = ["--ranks", str(RANKS), "--steps", str(STEPS), "--kill-rank", "1"]
Finished = tuple[Path, "subprocess.CompletedProcess[str]"]
CKPTLAB = [str(Path(sys.executable).parent / "ckptlab")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("demo")
    command = [*CKPTLAB, "demo", *SMALL, "--json", "--directory", str(folder)]
    return folder, subprocess.run(command, capture_output=True, text=True, timeout=110)


def test_a_killed_and_resumed_run_is_bitwise_the_unbroken_one(
    finished: Finished,
) -> None:
    folder, done = finished
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)  # and nothing else is there
    assert 0 < report.pop("seconds") < 110
    assert report == {
        "directory": str(folder),
        "ranks": RANKS,
        "steps": STEPS,
        "killed_rank": 1,
        "killed_at_step": 3,
        "resumed_from_step": 2,
        "bitwise_equal": True,
        "first_difference": None,
        "differences": {},
    }


def test_the_story_tells_each_part_and_where_the_files_are(finished: Finished) -> None:
    folder, done = finished
    assert f"{folder}/broken" in done.stderr
    assert "rank 1 was killed by SIGKILL" in done.stderr
    assert "resumed from step 2" in done.stderr
    assert [line.split("  ")[0] for line in map(str.strip, done.stderr.splitlines()) if line.endswith("identical")] == list(
        PARTS
    )


def test_each_rank_has_random_numbers_of_its_own(finished: Finished) -> None:
    states = {path.read_bytes() for path in finished[0].glob("*/step-00000004/ranks/*.safetensors")}
    assert len(states) == RANKS


def flip(file: Path, old: bytes, new: bytes) -> None:
    data = file.read_bytes()
    assert data.count(old) == 1
    file.write_bytes(data.replace(old, new))


def flip_last_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def change(run: Path, part: str) -> None:
    """Change one byte, or one number, of one part of a run."""
    step, record = run / "step-00000004", run / "records" / "rank-1.jsonl"
    last = json.loads(record.read_text().splitlines()[-1])
    match part:
        case "parameters":
            flip_last_byte(next(step.glob("model/*.safetensors")))
        case "optimizer":
            flip_last_byte(next(step.glob("optim/*.safetensors")))
        case "scheduler, position":
            flip(step / "state.json", b'"epoch": 0', b'"epoch": 1')
        case "losses":
            flip(record, last["loss"].encode(), (float.fromhex(last["loss"]) + 2**-20).hex().encode())
        case "sample order":
            flip(record, json.dumps(last["samples"]).encode(), json.dumps(last["samples"][::-1]).encode())
        case "random state":
            flip_last_byte(step / "ranks" / "rank-00001.safetensors")


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("parameters", "positions.weight"),
        ("optimizer", "step::"),
        ("scheduler, position", "epoch: 0 and 1"),
        ("losses", "rank 1, step 4"),
        ("sample order", "rank 1, step 4"),
        ("random state", "ranks/rank-00001.safetensors/rng::"),
    ],
)
def test_one_changed_byte_is_found_and_named(finished: Finished, tmp_path: Path, part: str, name: str) -> None:
    folder = shutil.copytree(finished[0], tmp_path / "demo")
    change(folder / "broken", part)
    differences = find_differences(folder / "unbroken", folder / "broken", step=STEPS, ranks=RANKS)
    assert list(differences) == [part]
    assert name in differences[part]


def test_runs_that_differ_are_told_by_part_and_the_exit_code_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = DemoReport(
        directory=tmp_path,
        ranks=4,
        steps=40,
        killed_rank=2,
        killed_at_step=25,
        resumed_from_step=20,
        differences={"losses": "rank 1, step 21: 2.5 and 2.25"},
        seconds=0.0,
    )
    monkeypatch.setattr("ckptlab.cli.demo.do_demo", lambda **_: report)
    assert run(["demo"]) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"parameters identical", "losses rank 1, step 21: 2.5 and 2.25", "random state identical"} <= set(lines)
    assert any("differs from the run that was never broken" in line for line in lines)
    assert run(["demo", "--json"]) == 1
    out, err = capsys.readouterr()
    assert "differs from" in err
    document = json.loads(out)
    assert document["bitwise_equal"] is False
    assert document["first_difference"] == "losses: rank 1, step 21: 2.5 and 2.25"


def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(StepError, match="is not an empty folder"):
        do_demo(ranks=1, steps=2, directory=tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("mine", "mine")]


def test_without_a_folder_each_demo_gets_a_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [str(fresh_folder(None)) for _ in range(3)] == ["runs/demo", "runs/demo-2", "runs/demo-3"]


def test_a_rank_that_is_not_there_cannot_be_killed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one of the ranks 0 to 3"):
        do_demo(ranks=4, kill_rank=4, directory=tmp_path / "demo")
    assert list(tmp_path.iterdir()) == []


def test_the_kill_comes_after_the_first_save_and_not_after_the_end() -> None:
    assert schedule(40) == (10, 25)
    assert all(every < kill_at <= steps for steps in range(2, 50) for every, kill_at in [schedule(steps)])
