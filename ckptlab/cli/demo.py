"""`ckptlab demo`."""

from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option


@click.command(cls=Door)
@click.option("--ranks", default=4, show_default=True, type=click.IntRange(1, 64), help="Ranks that train.")
@click.option("--steps", default=40, show_default=True, type=click.IntRange(min=2), help="Optimizer steps in all.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where the runs go; by default a temporary directory.")
@click.option("--kill-rank", default=2, show_default=True, type=click.IntRange(min=0), help="The rank that is killed half-way.")
@click.option("--text", type=click.Path(path_type=Path), help="A folder of text to train on.")
@json_option
def demo(ranks: int, steps: int, directory: Path | None, kill_rank: int, text: Path | None, as_json: bool) -> int:
    """Train, kill a rank, resume, and show that the result is the same bit for bit."""
    from ckptlab.train.demo import tell

    return tell(ranks=ranks, steps=steps, directory=directory, kill_rank=kill_rank, text=text, as_json=as_json)
