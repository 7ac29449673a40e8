"""`torchrun --nproc-per-node 4 -m ckptlab.train runs/mine`, or `python -m ckptlab.train …` for a world of one."""

import os
import sys
from typing import Any

import click

from ckptlab.errors import CkptlabError, UsageError
from ckptlab.train.job import train
from ckptlab.train.options import Options, job_options


@click.command()
@job_options
def main(**options: Any) -> None:
    """Train a small GPT on text, sharded over the ranks, in the folder RUN, from the checkpoint there if there is one."""
    try:
        train(Options(**options))
    except CkptlabError as error:
        click.echo(f"rank {os.environ.get('RANK', 0)}: error: {error}", err=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)


if __name__ == "__main__":
    main()
