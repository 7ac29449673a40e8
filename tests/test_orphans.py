import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import descendants, state_and_parent, until

from ckptlab.errors import WorldError
from ckptlab.ranks import run_job

pytestmark = [pytest.mark.timeout(60), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
TESTS = Path(__file__).parent

WORLD = """
import signal, sys
from pathlib import Path
from ckptlab.ranks import World
world = World(2)
world.run("from test_orphans import busy_loader; loader = busy_loader()", ranks=[0])
world.pause(1)
Path(sys.argv[1], "ready").touch()
signal.pause()
"""
JOB = """
import sys
from ckptlab.ranks import run_job
run_job("restart_worker:stay", (sys.argv[1],), num_ranks=2)
"""


def busy_loader() -> object:
    """Return a loader's iterator; its worker process is busy with a sample for minutes."""
    from torch.utils.data import DataLoader

    return iter(DataLoader(Slow(), num_workers=1))


class Slow:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        time.sleep(300)
        return index


@pytest.mark.parametrize(("script", "num_processes"), [(WORLD, 5), (JOB, 6)], ids=["world", "job"])
def test_nothing_outlives_a_killed_parent(script: str, num_processes: int, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(TESTS), "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", script, tmp_path], env=environment)
    try:
        assert until(lambda: (tmp_path / "ready").exists(), 40)
        assert until(lambda: "T" in {state_and_parent(pid)[0] for pid in descendants(parent.pid)}, 10), "no rank is stopped"
        processes = descendants(parent.pid)
        assert len(processes) == num_processes  # forkserver, its resource tracker, (agent,) two ranks, a loader worker
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    gone = until(lambda: all(state_and_parent(pid)[0] in "XZ" for pid in processes), 3)
    assert gone, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes if state_and_parent(pid)[0] not in "XZ"]


def test_the_ranks_of_a_killed_agent_end_while_the_parent_lives(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="the elastic agent was killed by SIGKILL"):
        run_job("restart_worker:kill_the_agent", (str(tmp_path),), num_ranks=2)
    ranks = [int(path.name) for path in tmp_path.iterdir()]
    assert len(ranks) == 2
    assert until(lambda: all(state_and_parent(pid)[0] in "XZ" for pid in ranks), 3)
