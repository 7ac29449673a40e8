"""`ckptlab push STEP|RUN ADDRESS`."""

import click
from rich.filesize import decimal

from ckptlab.cli.bar import bytes_bar
from ckptlab.cli.door import Door, json_option, say, say_json, to_place
from ckptlab.errors import StepError, UsageError
from ckptlab.steps.steps import Step, find_steps
from ckptlab.storage import ObjectPath, Place
from ckptlab.tiers import Pushed
from ckptlab.tiers import push as push_step


@click.command(cls=Door)
@click.argument("path", metavar="STEP|RUN", callback=to_place)
@click.argument("address", callback=to_place)
@json_option
def push(path: Place, address: Place, as_json: bool) -> int:
    """Put STEP, or every whole step of RUN, newest first, into the run at ADDRESS: s3://bucket/runs/mine.

    A step is there when all of it is there. What is there already is not sent again, and nothing is overwritten.
    """
    steps = find_steps(path)[::-1]
    if not steps:
        raise StepError(f"{path} has no steps yet; there is nothing to push")
    if not isinstance(address, ObjectPath):
        raise UsageError(f"{address}: expected the address of a run in an object store, like s3://bucket/runs/mine")
    whole = [step for step in steps if step.whole]
    pushed = _push(whole, address)
    if as_json:
        say_json({"steps": [_document(one) for one in pushed], "not_whole": {s.number: s.fault for s in steps if not s.whole}})
        return 0 if len(whole) == len(steps) else 1
    for one in pushed:
        what = f"{decimal(sum(one.sent.values()))} in {len(one.sent)} files sent" if one.sent else "all of it was there"
        say(f"step {one.step}: {what}; {one.path}")
    for step in steps:
        if not step.whole:
            say(f"step {step.number}: {step.verdict}; not pushed")
    return 0 if len(whole) == len(steps) else 1


def _push(steps: list[Step], address: ObjectPath) -> list[Pushed]:
    with bytes_bar() as bar:
        task = bar.add_task("", total=sum(step.num_bytes for step in steps))
        return [push_step(step.path, address, lambda num_bytes: bar.advance(task, num_bytes)) for step in steps]


def _document(one: Pushed) -> dict[str, object]:
    return {"step": one.step, "path": str(one.path), "sent": one.sent}
