"""`ckptlab verify STEP|RUN`."""

from dataclasses import asdict

import click
from rich.filesize import decimal

from ckptlab.cli.bar import bytes_bar
from ckptlab.cli.door import Door, json_option, say, say_json, to_place
from ckptlab.errors import StepError
from ckptlab.steps.steps import Step, find_steps
from ckptlab.steps.verify import Fault
from ckptlab.steps.verify import verify as verify_step
from ckptlab.storage import ObjectPath, Place


@click.command(cls=Door)
@click.argument("path", metavar="STEP|RUN", callback=to_place)
@json_option
def verify(path: Place, as_json: bool) -> int:
    """Read every byte of STEP, or of every step of RUN, and say what is not as it was written."""
    named = find_steps(path)
    steps = [step for step in named if len(named) == 1 or not _is_left_over(step)]
    if not steps:
        raise StepError(f"{path} has no steps yet; there is nothing to verify")
    faults = _verify(steps)
    for step in named:
        if step not in steps:
            say(f"step {step.number}: {step.verdict}", err=True)
    if as_json:
        say_json({"steps": [_document(step, found) for step, found in zip(steps, faults, strict=True)]})
    else:
        for step, found in zip(steps, faults, strict=True):
            _say_faults(step, found)
    return 1 if any(faults) else 0


def _is_left_over(step: Step) -> bool:
    """Whether it is none: on a disk such a directory has another name."""
    return step.torn and isinstance(step.path, ObjectPath)


def _verify(steps: list[Step]) -> list[list[Fault]]:
    """Read all steps, with a bar where a person looks on."""
    with bytes_bar() as bar:
        task = bar.add_task("", total=sum(step.num_bytes for step in steps))
        return [list(verify_step(step, lambda num_bytes: bar.advance(task, num_bytes))) for step in steps]


def _say_faults(step: Step, faults: list[Fault]) -> None:
    for fault in faults:
        say(f"step {step.number}: {fault}")
    if not faults:
        say(f"step {step.number}: all {decimal(step.num_bytes)} are as they were written")


def _document(step: Step, faults: list[Fault]) -> dict[str, object]:
    return {"step": step.number, "path": str(step.path), "bytes": step.num_bytes, "faults": [asdict(fault) for fault in faults]}
