"""The batch script on a real Slurm: a job that is preempted is queued again and ends as the job that never was."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from processes import until
from slurm import SEARCH, TOOLS, ask, slurm

from ckptlab.steps.events import read_events
from ckptlab.train.launch import launch
from ckptlab.train.options import Options
from ckptlab.train.records import read_records
from ckptlab.train.report import find_differences

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
LAST = 20


@pytest.fixture
def cluster() -> Iterator[Mapping[str, str]]:
    """A Slurm of our own. That it is not installed is a failure where CKPTLAB_REQUIRE asks for services."""
    refuse = pytest.fail if "services" in os.environ.get("CKPTLAB_REQUIRE", "").split(",") else pytest.skip
    missing = [tool for tool in TOOLS if shutil.which(tool, path=SEARCH) is None]
    if missing or os.geteuid() != 0:
        refuse(f"needs root and Slurm (apt install slurm-wlm munge); missing: {', '.join(missing) or 'root'}")
    with slurm() as environment:
        yield environment


def test_a_job_that_a_more_urgent_one_preempts_is_queued_again_and_ends_as_the_unbroken_run(
    cluster: Mapping[str, str], tmp_path: Path
) -> None:
    unbroken, run = tmp_path / "unbroken", tmp_path / "run"
    launch(Options(run=unbroken, steps=LAST, every=100, global_batch=2, workers=1), ranks=2, max_restarts=0, say=print)
    environment = dict(cluster) | {"PATH": f"{Path(sys.executable).parent}:{cluster['PATH']}", "PYTHONPATH": str(ROOT)}
    job = ["--steps", str(LAST), "--every", "100", "--global-batch", "2", "--workers", "1"]
    log = tmp_path / "log"
    batch = ["sbatch", "--parsable", "--partition=low", "--ntasks-per-node=2", f"--output={log}"]
    number = ask(environment, *batch, str(ROOT / "labs" / "slurm" / "train.sbatch"), str(run), *job)

    assert until((run / "records" / "rank-1.jsonl").exists, 60), log.read_text()
    assert until(lambda: bool(read_records(run, 1)), 60), log.read_text()
    ask(environment, "sbatch", "--partition=high", "--ntasks=2", "--output=/dev/null", "--wrap", "true")
    assert until(lambda: "JobState=COMPLETED" in ask(environment, "scontrol", "show", "job", number), 100), log.read_text()

    assert "Restarts=1" in ask(environment, "scontrol", "show", "job", number)
    (stopped,) = [event for event in read_events(run) if event["event"] == "preempted"]
    assert (stopped["signal"], stopped["outcome"]) == ("SIGTERM", "committed")
    assert [event["step"] for event in read_events(run) if event["event"] == "load"] == [stopped["step"]]
    assert find_differences(unbroken, run, step=LAST, ranks=2) == {}
