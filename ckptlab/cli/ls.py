"""`ckptlab ls RUN`."""

import click
from rich.filesize import decimal

from ckptlab.cli.door import Door, json_option, say, say_json, say_table, to_place
from ckptlab.steps.housekeeping import list_asides
from ckptlab.steps.steps import Step, find_steps
from ckptlab.storage import Place

ASIDES = {
    "torn": "torn: its save never ended, or is under way; the next run that opens this directory removes it",
    "bad": "bad: set aside, never loaded; delete it when you have looked at it",
    "small": "small: a shrink that did not end, or is under way; the next shrink or run removes it",
    "was": "was: a step before a shrink that did not end; the next shrink or run puts it back, or removes it",
    "trash": "trash: a deletion that did not end; the next run that opens this directory removes it",
}


@click.command(cls=Door)
@click.argument("run", callback=to_place)
@json_option
def ls(run: Place, as_json: bool) -> int:
    """List the steps of RUN: bytes, ranks, whole or why not."""
    steps, asides = find_steps(run), list_asides(run)
    if as_json:
        say_json({"steps": [_document(step) for step in steps], "asides": asides})
        return 0
    rows = [(step.number, decimal(step.num_bytes), _num_ranks(step), step.verdict) for step in steps]
    say_table([("step", "bytes", "ranks", "state"), *rows] if rows else [["no steps yet"]])
    for name, kind in asides.items():
        say(f"{name}  {ASIDES[kind]}")
    return 0


def _num_ranks(step: Step) -> object:
    return step.manifest.saved_by.get("world_size", "?") if step.manifest else "?"


def _document(step: Step) -> dict[str, object]:
    return {
        "step": step.number,
        "path": str(step.path),
        "bytes": step.num_bytes,
        "ranks": step.manifest.saved_by.get("world_size") if step.manifest else None,
        "whole": step.whole,
        "fault": step.fault,
    }
