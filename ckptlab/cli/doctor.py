"""`ckptlab doctor`."""

from dataclasses import asdict
from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option, say_json, say_table
from ckptlab.doctor import examine


@click.command(cls=Door)
@json_option
def doctor(as_json: bool) -> int:
    """Look at this machine: what works, and what to do about the rest."""
    findings = list(examine(Path.cwd()))
    if as_json:
        say_json([asdict(finding) for finding in findings])
    else:
        say_table([(finding.what, finding.state, finding.found, finding.advice) for finding in findings])
    return 1 if any(finding.state == "missing" for finding in findings) else 0
