"""Each lab, run once from a clean kernel: its outputs are those committed, it fits in memory, and nothing outlives it."""

import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from execute import CELL_SECONDS, clean_environment
from processes import descendants, state_and_parent, until

from ckptlab.course.content import notebooks

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
MB = 1 << 20  # as Binder counts
SERVER_BYTES = 91 * MB  # JupyterLab's server with one notebook open, measured
# The floor of a lab that trains nothing: the server, 40 to 70 for the kernel, 310 for the forkserver and two idle ranks.
MOST_BYTES = {False: 500 * MB, True: 700 * MB}  # by whether it trains
LOOK_SECONDS = 0.25


@dataclass
class Run:
    """What was seen of a lab while it ran."""

    lab: Path
    report: str = ""
    exit_code: int = -1
    seconds: float = 0.0
    peak_bytes: int = 0
    processes: set[int] = field(default_factory=set)
    new_files: set[Path] = field(default_factory=set)


@pytest.fixture(scope="module", params=notebooks(), ids=lambda path: path.stem)
def run(request, tmp_path_factory) -> Run:
    home = tmp_path_factory.mktemp("home")
    run = Run(request.param)
    options = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_SECONDS}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-o", "filterwarnings=default", *options, run.lab]
    before = set(run.lab.parent.rglob("*"))
    with (home / "report").open("w+") as report:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=report, stderr=subprocess.STDOUT, env=clean_environment(home))
        while process.poll() is None:
            now = descendants(process.pid)
            run.processes |= now
            # the smallest of three looks: who ends during one hands its share on to others, and would be counted twice
            run.peak_bytes = max(run.peak_bytes, min(bytes_of(now) for _ in range(3)))
            time.sleep(LOOK_SECONDS)
        run.seconds = time.monotonic() - begin
        run.exit_code = process.returncode
        report.seek(0)
        run.report = report.read()
    run.new_files = {path for path in set(run.lab.parent.rglob("*")) - before if "__pycache__" not in path.parts}
    return run


def bytes_of(pids: set[int]) -> int:
    """Memory that these processes alone would take: what they share counts once, whoever else has the same files mapped."""
    own, files = 0, Counter[str]()
    for pid in pids:
        try:
            own += sum(
                int(line.split()[1]) for line in lines(pid, "smaps_rollup") if line.startswith(("Pss_Anon:", "Pss_Shmem:"))
            )
            held = file_kilobytes(lines(pid, "smaps"))
        except OSError:  # it is gone
            continue
        files |= held  # of each file the most that one of them has
    return (own + files.total()) * 1024


def file_kilobytes(smaps: list[str]) -> Counter[str]:
    """What a process has in memory of each mapped file, without the pages that it has changed."""
    files, name = Counter[str](), ""
    for line in smaps:
        key, *words = line.split(maxsplit=5)
        if not key.endswith(":"):
            name = words[-1] if len(words) == 5 and words[-1].startswith("/") and not words[-1].startswith("/dev/") else ""
        elif key in ("Rss:", "Anonymous:") and name:
            files[name] += int(words[0]) * (1 if key == "Rss:" else -1)
    return files


def lines(pid: int, name: str) -> list[str]:
    return Path(f"/proc/{pid}/{name}").read_text().splitlines()


def test_the_outputs_are_those_committed(run: Run, capsys) -> None:
    with capsys.disabled():
        print(f"\n{run.lab.stem}: {run.seconds:.1f} s, {run.peak_bytes // MB} MB without JupyterLab's server")
    assert run.exit_code == 0, run.report


def test_it_fits_into_the_memory_that_is_promised(run: Run) -> None:
    trains = json.loads(run.lab.read_text())["metadata"].get("ckptlab_trains", False)
    assert run.peak_bytes > 0
    assert run.peak_bytes + SERVER_BYTES <= MOST_BYTES[trains]


def test_no_process_outlives_it(run: Run) -> None:
    assert run.processes, "no kernel was seen"
    assert until(lambda: all(state_and_parent(pid)[0] in "XZ" for pid in run.processes), 3)


def test_it_leaves_no_file_beside_the_notebooks(run: Run) -> None:
    assert run.new_files == set()
