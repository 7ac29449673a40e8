"""`ckptlab diff STEP STEP`."""

from dataclasses import asdict

import click

from ckptlab.cli.door import Door, json_option, say, say_json, to_place
from ckptlab.steps import compare
from ckptlab.steps.steps import find_step
from ckptlab.storage import Place


@click.command(cls=Door)
@click.argument("first", metavar="STEP", callback=to_place)
@click.argument("second", metavar="STEP", callback=to_place)
@json_option
def diff(first: Place, second: Place, as_json: bool) -> int:
    """Say what differs between two steps, bit for bit: tensors, state, what belongs to one rank; exit 1 if anything does."""
    differences = list(compare(find_step(first), find_step(second)))
    if as_json:
        say_json({"differences": [asdict(difference) for difference in differences]})
    else:
        for difference in differences:
            say(str(difference))
        if not differences:
            say("identical, bit for bit")
    return 1 if differences else 0
