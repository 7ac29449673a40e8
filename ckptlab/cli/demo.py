"""`ckptlab demo`."""

from functools import partial
from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option, say_json
from ckptlab.train.demo import Say
from ckptlab.train.demo import demo as do_demo
from ckptlab.train.options import ranks_option
from ckptlab.train.report import PARTS, DemoReport


@click.command(cls=Door)
@ranks_option
@click.option("--steps", default=40, show_default=True, type=click.IntRange(min=2), help="Optimizer steps of each run.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where the runs go; by default a fresh folder runs/demo.")
@click.option("--kill-rank", type=click.IntRange(min=0), help="The rank that is killed; by default 2, or the last of fewer.")
@click.option("--text", type=click.Path(path_type=Path), help="A folder to train on; by default this Python's own library.")
@json_option
def demo(ranks: int, steps: int, directory: Path | None, kill_rank: int | None, text: Path | None, as_json: bool) -> int:
    """Train, kill a rank, resume, and show that the result is the same bit for bit."""
    say = partial(click.echo, err=as_json)  # with --json the report alone goes to stdout
    report = do_demo(ranks=ranks, steps=steps, directory=directory, kill_rank=kill_rank, text=text, say=say)
    tell_end(report, say)
    if as_json:
        say_json(report.to_json())
    return 1 if report.differences else 0


def tell_end(report: DemoReport, say: Say) -> None:
    """Tell what came out, part by part."""
    say("")
    for part in PARTS:
        say(f"   {part:<20} {report.differences.get(part, 'identical')}")
    outcome = "differs from" if report.differences else "is, bit for bit,"
    say(
        f"\nRank {report.killed_rank} died in step {report.killed_at_step}. All ranks were started again, took the checkpoint "
        f"of step {report.resumed_from_step} and trained on.\nThe finished run {outcome} the run that was never broken. "
        f"{report.seconds:.0f} s in all.\nTo look at it: ckptlab ls {report.directory / 'broken'}"
    )
