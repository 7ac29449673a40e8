"""`ckptlab rollback RUN NUMBER`."""

from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option, say, say_json
from ckptlab.steps.rollback import rollback as roll_back


@click.command(cls=Door)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("number", type=click.IntRange(min=0))
@json_option
def rollback(run: Path, number: int, as_json: bool) -> int:
    """Make step NUMBER the one that the next resume of RUN takes; later steps are set aside, and nothing is deleted."""
    aside = roll_back(run, number)
    if as_json:
        say_json({"step": number, "set_aside": {later: str(path) for later, path in aside.items()}})
        return 0
    for later, path in aside.items():
        say(f"step {later} is set aside as {path.name}")
    lost = f"what was trained after it, up to step {max(aside)}, is not in the run any more" if aside else "it was the newest"
    say(f"the next resume takes step {number}; {lost}")
    return 0
