"""The demo: train, train again and lose a rank in the middle of a step, come back, and compare the two runs bit for bit.

It only directs: the ranks are processes of their own, started and restarted by torch's elastic agent; torch is not loaded here.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from ckptlab.errors import StepError, UsageError, WorldError
from ckptlab.train.launch import launch
from ckptlab.train.options import Options
from ckptlab.train.report import DemoReport, find_differences, resumed_from
from ckptlab.train.text import read_text

MIN_STEPS = 2
Say = Callable[[str], object]


def demo(
    *,
    ranks: int = 4,
    steps: int = 40,
    directory: Path | None = None,
    kill_rank: int | None = None,
    text: Path | None = None,
    say: Say = print,
) -> DemoReport:
    """Do the unbroken run, then the broken one, both below `directory`, and compare them.

    Args:
        ranks: the world size.
        steps: optimizer steps of each run.
        directory: where the runs go, empty or not there yet; by default a fresh folder `runs/demo`, `runs/demo-2`, …
        kill_rank: who is killed; by default rank 2, or the last where there are fewer.
        text: a folder of text to train on instead of Python's own source.
        say: takes the story line by line.

    Raises:
        CkptlabError: the arguments do not fit, the directory is taken, or a run could not be finished.
    """
    begin = time.monotonic()
    victim = min(2, ranks - 1) if kill_rank is None else kill_rank
    if steps < MIN_STEPS or not 0 <= victim < ranks:
        raise UsageError(f"steps={steps}, kill_rank={victim}: at least {MIN_STEPS} steps and one of the ranks 0 to {ranks - 1}")
    source = read_text(text)
    folder = fresh_folder(directory)
    every, kill_at = schedule(steps)
    unbroken = Options(run=folder / "unbroken", steps=steps, every=every, global_batch=4 * ranks, text=text)
    broken = replace(unbroken, run=folder / "broken", kill=(victim, kill_at))

    say(f"A training run is broken and brought back. It learns from {len(source.data) / 1e6:.1f} MB of text in {source.folder}")
    say(f"\n1. {ranks} ranks train a GPT for {steps} steps and save a checkpoint every {every}: {unbroken.run}")
    launch(unbroken, ranks=ranks, max_restarts=0, say=say)
    say(f"\n2. The same again, but in the middle of step {kill_at} rank {victim} is killed (SIGKILL): {broken.run}")
    lose_a_rank(broken, ranks=ranks, victim=victim, say=say)
    say(f"\n3. Both runs are compared bit for bit: all of step {steps}, and what each rank recorded in every step.")
    return DemoReport(
        directory=folder,
        ranks=ranks,
        steps=steps,
        killed_rank=victim,
        killed_at_step=kill_at,
        resumed_from_step=resumed_from(broken.run),
        differences=find_differences(unbroken.run, broken.run, step=steps, ranks=ranks),
        seconds=time.monotonic() - begin,
    )


def lose_a_rank(job: Options, *, ranks: int, victim: int, say: Say) -> None:
    """Run a job that kills one of its ranks; that it was this one, and once, is a part of the proof."""
    failures = launch(job, ranks=ranks, max_restarts=1, say=say)
    if [failure.rank for failure in failures] != [victim]:
        lost = "; ".join(map(str, failures)) or "none"
        raise WorldError(f"{job.run}: rank {victim} was to be lost, and no other; lost: {lost}")


def schedule(steps: int) -> tuple[int, int]:
    """Say how often to save, and in which step to kill: half-way between two saves. 40 steps: every 10, and 25."""
    every = max(1, steps // 4)
    return every, min(steps, 2 * every + (every + 1) // 2)


def fresh_folder(directory: Path | None) -> Path:
    """Make the folder for the runs; nothing that is there is touched."""
    if directory is None:
        names = (f"demo-{number}" if number > 1 else "demo" for number in count(1))
        directory = next(path for path in map(Path("runs").joinpath, names) if not path.exists())
    elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise StepError(f"{directory} is not an empty folder; give another one (nothing in it was changed)")
    directory.mkdir(parents=True, exist_ok=True)
    return directory
