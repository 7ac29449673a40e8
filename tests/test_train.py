"""The reference job: its text, its model on ranks, and that it goes on exactly, however it was started."""

import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ckptlab.cli.main import run
from ckptlab.errors import RankRaised, UsageError
from ckptlab.ranks import World
from ckptlab.train.job import shard, train_step
from ckptlab.train.launch import launch
from ckptlab.train.model import GPT
from ckptlab.train.options import Options
from ckptlab.train.records import Record, cut_records, open_records, read_records, write_record
from ckptlab.train.report import find_differences, resumed_from
from ckptlab.train.text import CONTEXT, python_sources, read_text
from ckptlab.train.windows import Windows


def write_texts(folder: Path) -> Path:
    for name, text in (("b.txt", "second "), ("a/c.txt", "first "), ("z.bin", "binary\0"), (".hidden", "hidden ")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text * 1000)
    (folder / "link.txt").symlink_to(folder / "b.txt")
    return folder


def test_a_folder_gives_its_visible_text_files_in_one_order(tmp_path: Path) -> None:
    text = read_text(write_texts(tmp_path))
    assert text.data == b"second " * 1000 + b"first " * 1000
    assert text == read_text(tmp_path)


@pytest.mark.parametrize("change", ["one byte", "one name"])
def test_one_changed_byte_or_name_is_another_text(tmp_path: Path, change: str) -> None:
    before = read_text(write_texts(tmp_path)).fingerprint
    file = tmp_path / "b.txt"
    if change == "one byte":
        file.write_text(file.read_text()[:-1] + "X")
    else:
        file.rename(tmp_path / "bb.txt")
    assert read_text(tmp_path).fingerprint != before


def test_pythons_own_source_is_text_enough_and_holds_no_tests() -> None:
    text = read_text()
    assert len(text.data) >= 5_000_000
    assert b"class Thread:" in text.data
    folders = {part for path in python_sources(text.folder) for part in path.relative_to(text.folder).parent.parts}
    assert not folders & {"site-packages", "test", "tests", "idle_test"}


def test_too_little_text_or_no_folder_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("few")
    with pytest.raises(UsageError, match=rf"{tmp_path} holds 3 bytes of text, one sample needs {CONTEXT + 1}"):
        read_text(tmp_path)
    with pytest.raises(UsageError, match=r"few\.txt is not a folder"):
        read_text(tmp_path / "few.txt")


def test_windows_cover_the_text_and_share_one_byte(tmp_path: Path) -> None:
    windows = Windows(read_text(write_texts(tmp_path)))
    assert len(windows) == 12_999 // CONTEXT
    samples = [windows[number] for number in range(len(windows))]
    assert [number for number, _ in samples] == list(range(len(windows)))
    joined = torch.cat([window[:-1] for _, window in samples])
    assert bytes(joined.tolist()) == (b"second " * 1000 + b"first " * 1000)[: len(joined)]
    assert all(first[-1] == second[0] for (_, first), (_, second) in pairwise(samples))


def test_a_position_does_not_see_what_comes_after_it() -> None:
    torch.manual_seed(0)
    model, text = GPT(CONTEXT).eval(), torch.randint(0, 256, (1, CONTEXT))
    other = text.clone()
    other[:, 70:] = 0
    scores, others = model(text), model(other)
    torch.testing.assert_close(scores[:, :70], others[:, :70])
    assert not torch.equal(scores[:, 70:], others[:, 70:])


def sharded_step() -> tuple[bool, int, float]:
    torch.manual_seed(0)
    model = GPT(CONTEXT)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(torch.arange(2), torch.randint(0, 256, (2, CONTEXT + 1))) for _ in range(2)]
    loss = train_step(model, optimizer, batches, die=False)
    return model.head.weight is model.embed.weight and dist.get_world_size() > 1, num_parameters, loss


def test_the_tied_tensor_stays_one_under_fsdp_and_the_first_loss_is_that_of_chance() -> None:
    with World(2) as world:
        (tied, num_parameters, loss), _ = world.run(sharded_step)
    assert tied
    assert 850_000 < num_parameters < 950_000
    assert abs(loss - math.log(256)) < 0.1


def test_records_are_cut_after_the_resumed_step_for_every_rank_that_ever_was(tmp_path: Path) -> None:
    for rank in range(3):
        with open_records(tmp_path, rank) as file:
            for step in range(1, 2 + rank):
                write_record(file, step, [rank, step], 0.1 * step)
            file.write('{"step": ')  # a rank was killed here
    for rank in range(2):
        cut_records(tmp_path, 1, rank, 2)
    for rank in range(3):
        assert read_records(tmp_path, rank) == [Record(1, [rank, 1], 0.1)]


def test_a_job_that_lost_a_rank_under_torchrun_ends_as_the_unbroken_one_on_the_elastic_agent(tmp_path: Path) -> None:
    job = Options(run=tmp_path / "agent", steps=7, every=2, accumulate=2, workers=1)
    launch(job, ranks=2, max_restarts=0, say=print)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    arguments = ["--steps", "7", "--every", "2", "--accumulate", "2", "--workers", "1", "--kill", "1", "6"]
    broken = tmp_path / "torchrun"
    subprocess.run([*torchrun, "-m", "ckptlab.train", str(broken), *arguments], check=True, timeout=100)
    assert resumed_from(broken) == 4
    assert find_differences(job.run, broken, step=7, ranks=2) == {}


def test_a_finished_run_goes_on_as_though_it_had_been_meant_so(tmp_path: Path) -> None:
    long = Options(run=tmp_path / "long", steps=5, every=2)
    longer = replace(long, run=tmp_path / "longer", background="wait")
    launch(long, ranks=2, max_restarts=0, say=print)
    for steps in (3, 5, 5):
        launch(replace(longer, steps=steps), ranks=2, max_restarts=0, say=print)
    assert find_differences(long.run, longer.run, step=5, ranks=2) == {}


def test_another_text_at_resume_is_refused_once_and_told(tmp_path: Path) -> None:
    job = Options(run=tmp_path / "run", steps=1, text=write_texts(tmp_path / "text"))
    launch(job, ranks=1, max_restarts=0, say=print)
    (tmp_path / "text" / "b.txt").write_text("SECOND " * 1000)
    attempts: list[str] = []
    with pytest.raises(RankRaised, match="fingerprint"):
        launch(replace(job, steps=2), ranks=1, max_restarts=3, say=attempts.append)
    assert attempts == []


def test_without_a_launcher_the_world_is_one_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ckptlab.train", str(tmp_path / "run"), "--steps", "1", "--background", "skip"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "")
    assert "world of 1, gloo on cpu, deterministic algorithms in torch and cuBLAS" in done.stderr
    failed = subprocess.run([*command, "--kill", "1", "1"], capture_output=True, text=True, timeout=100)
    assert failed.returncode == 2
    assert "rank 0: error: --kill 1 1: expected one of the ranks 0 to 0" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "none"], "text: none is not a folder"),
        (["--text", "few"], "--global-batch 16: few holds 7 samples"),
        (["--global-batch", "6"], "--global-batch 6 cannot be dealt out evenly to 4 ranks"),
        (["--kill", "9", "1"], "--kill 9 1: expected one of the ranks 0 to 3"),
        (["--kill", "1", "201"], "one of the steps 1 to 200"),
        (["--kill", "-1", "1"], "one of the ranks 0 to 3"),
    ],
)
def test_bad_usage_is_told_by_ckptlab_train_before_a_rank_is_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("few").mkdir()
    Path("few/poem.txt").write_text("the sea\n" * 113)
    assert run(["train", "run", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert not Path("run").exists()
