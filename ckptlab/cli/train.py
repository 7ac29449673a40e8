"""`ckptlab train RUN`."""

from functools import partial
from typing import Any

import click

from ckptlab.cli.door import Door, say
from ckptlab.errors import Preempted
from ckptlab.steps.preempted import has_mark
from ckptlab.train.launch import launch
from ckptlab.train.options import Options, job_options, ranks_option


@click.command(cls=Door)
@job_options
@ranks_option
@click.option(
    "--max-restarts", default=3, show_default=True, type=click.IntRange(min=0), help="How often to go on when a rank is lost."
)
def train(ranks: int, max_restarts: int, **options: Any) -> int:
    """Train a small GPT in the folder RUN, from the checkpoint there if there is one; start again when a rank is lost.

    The same training under another launcher, also on several machines: torchrun -m ckptlab.train RUN.
    """
    job = Options(**options)
    try:
        launch(job, ranks=ranks, max_restarts=max_restarts, say=partial(say, err=True))
    except SystemExit:  # SIGTERM; whether the ranks could still save, the mark says
        if not has_mark(job.run):
            raise
    return Preempted.CODE if has_mark(job.run) else 0
