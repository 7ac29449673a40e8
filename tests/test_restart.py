import os
from pathlib import Path

import pytest
import restart_worker

from ckptlab.errors import RankLost, RankRaised, WorldError
from ckptlab.ranks import Failure, init_from_environment, run_job

pytestmark = pytest.mark.timeout(90)
ALL_MET_AGAIN = {f"attempt-1-rank-{rank}": "256" for rank in range(4)}


def left_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_job_meets_again_after_a_rank_died(tmp_path: Path) -> None:
    failures: list[Failure] = []
    run_job(restart_worker.main, (str(tmp_path),), num_ranks=4, max_restarts=1, on_failure=failures.append)
    assert left_in(tmp_path) == ALL_MET_AGAIN
    assert [str(failure) for failure in failures] == ["attempt 0: rank 2 was killed by SIGKILL; all ranks are started again"]


@pytest.mark.parametrize(
    ("how", "rank", "error", "message"),
    [
        ("die", 1, RankLost, "attempt 0: rank 1 was killed by SIGKILL; no restart is left"),
        ("exit", 1, RankLost, "attempt 0: rank 1 exited with code 3; no restart is left"),
        ("stay away", 0, RankRaised, "raised WorldError: rank 1 did not come to meet rank 0 within 1 s"),
        ("raise", 1, RankRaised, 'attempt 0: rank 1 raised ValueError: bad shard; (.|\n)*raise ValueError\\("bad shard"\\)'),
    ],
)
def test_a_job_without_restarts_left_tells_in_words(how: str, rank: int, error: type[WorldError], message: str) -> None:
    failures: list[Failure] = []
    with pytest.raises(error, match=message):
        run_job("restart_worker:end_badly", (how,), num_ranks=2, on_failure=failures.append)
    assert [(failure.attempt, failure.rank, failure.restarts_left) for failure in failures] == [(0, rank, 0)]


def test_a_process_that_no_launcher_started_is_told_so() -> None:
    assert "RANK" not in os.environ
    with pytest.raises(WorldError, match="RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE not set; start it with torchrun"):
        init_from_environment()
