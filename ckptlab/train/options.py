"""What the reference job can be told, and its command line; without torch, so that `--help` answers at once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from ckptlab.errors import UsageError
from ckptlab.tiers import ObjectStore

DETERMINISM = "deterministic algorithms in torch and cuBLAS, no cuDNN benchmark, one CPU thread a rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One training job; the fields are the options of `python -m ckptlab.train`, and their defaults stand here only."""

    run: Path
    steps: int = 200
    every: int = 20
    background: Literal["wait", "skip"] | None = None
    grace_seconds: float | None = None
    keep_last: int = 3
    push: str | None = None
    global_batch: int = 16
    accumulate: int = 1
    workers: int = 0
    lr: float = 3e-3
    seed: int = 0
    text: Path | None = None
    deterministic: bool = True
    kill: tuple[int, int] | None = None
    allow_inexact: bool = False

    def check(self, num_ranks: int) -> None:
        """Refuse what so many ranks could not do (the process that starts them, and every rank)."""
        if self.global_batch % (parts := num_ranks * self.accumulate):
            raise UsageError(
                f"--global-batch {self.global_batch} cannot be dealt out evenly to {num_ranks} ranks in {self.accumulate} "
                f"micro-batches each; take a multiple of {parts}, or another number of ranks"
            )
        if self.push is not None:
            ObjectStore(self.push)
        if self.kill is not None and not (0 <= self.kill[0] < num_ranks and 1 <= self.kill[1] <= self.steps):
            raise UsageError(
                f"--kill {self.kill[0]} {self.kill[1]}: expected one of the ranks 0 to {num_ranks - 1}, "
                f"and one of the steps 1 to {self.steps}"
            )


def option(name: str, kind: Any, text: str, metavar: str | None = None) -> Callable[..., Any]:
    """One click option whose default is that of the field of `Options`."""
    field = name.removeprefix("--").split("/")[0].replace("-", "_")
    default = Options.__dataclass_fields__[field].default
    return click.option(name, type=kind, default=default, show_default=default is not None, metavar=metavar, help=text)


COUNT = click.IntRange(min=1)
FOLDER = click.Path(path_type=Path, file_okay=False)
OPTIONS = (
    click.argument("run", type=FOLDER),  # torchrun takes an option --run for its own
    option("--steps", COUNT, "Optimizer steps in all, those before a resume included."),
    option("--every", COUNT, "Save a checkpoint every so many steps."),
    option(
        "--background",
        click.Choice(["wait", "skip"]),
        "Write checkpoints behind the training; one that is due while another is written waits for it, or is left out.",
    ),
    option(
        "--grace-seconds",
        click.FloatRange(min=0, min_open=True),
        "After SIGTERM or SIGUSR1 to any rank, which has so many seconds then, save and end with exit code 75; the same "
        "command goes on. Under torchrun the code is 0.",
    ),
    option("--keep-last", COUNT, "Keep so many checkpoints."),
    option("--push", str, "Also put every checkpoint into an object store, and go on from there on a new machine.", "ADDRESS"),
    option("--global-batch", COUNT, "Samples in one optimizer step, over all ranks."),
    option("--accumulate", COUNT, "Micro-batches in one optimizer step."),
    option("--workers", click.IntRange(min=0), "Loader workers a rank."),
    option("--lr", click.FloatRange(min=0, min_open=True), "Learning rate after the warm-up."),
    option("--seed", click.IntRange(min=0), "What all random numbers come from."),
    option("--text", FOLDER, "Folder to train on; without it, the source of this Python's own library."),
    option(
        "--deterministic/--no-deterministic",
        bool,
        f"Same input, same bits: {DETERMINISM}.",
    ),
    option(
        "--kill",
        (int, int),
        "A fault, to practise with: SIGKILL this rank in the middle of this step, in the first attempt only.",
        metavar="RANK STEP",
    ),
    option(
        "--allow-inexact/--no-allow-inexact",
        bool,
        "Go on also from a checkpoint that `ckptlab shrink` made small as int8.",
    ),
)

ranks_option = click.option(
    "--ranks", default=4, show_default=True, type=click.IntRange(1, 64), help="Ranks that train, on this machine."
)


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a click command all options of the job, in their order (for `python -m ckptlab.train` and `ckptlab train`)."""
    for decorate in reversed(OPTIONS):
        command = decorate(command)
    return command
