"""`ckptlab demo`."""

from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option
from ckptlab.train.demo import tell


@click.command(cls=Door)
@click.option("--ranks", default=4, show_default=True, type=click.IntRange(1, 64), help="Ranks that train.")
@click.option("--steps", default=40, show_default=True, type=click.IntRange(min=2), help="Optimizer steps of each run.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where the runs go; by default a fresh folder runs/demo.")
@click.option("--kill-rank", type=click.IntRange(min=0), help="The rank that is killed; by default 2, or the last of fewer.")
@click.option("--text", type=click.Path(path_type=Path), help="A folder to train on; by default this Python's own library.")
@json_option
def demo(ranks: int, steps: int, directory: Path | None, kill_rank: int | None, text: Path | None, as_json: bool) -> int:
    """Train, kill a rank, resume, and show that the result is the same bit for bit."""
    return tell(ranks=ranks, steps=steps, directory=directory, kill_rank=kill_rank, text=text, as_json=as_json)
