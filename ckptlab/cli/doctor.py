"""`ckptlab doctor`."""

from dataclasses import asdict
from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option, say, say_json, say_table
from ckptlab.doctor import examine


@click.command(cls=Door)
@json_option
@click.option(
    "--links",
    "repository",
    metavar="OWNER/NAME",
    help="Instead give links for a course page that open each lab on Binder, from this repository on GitHub.",
)
def doctor(as_json: bool, repository: str | None) -> int:
    """Look at this machine: what works, and what to do about the rest."""
    if repository is not None:
        return _links(as_json, repository)
    findings = list(examine(Path.cwd()))
    if as_json:
        say_json([asdict(finding) for finding in findings])
    else:
        say_table([(finding.what, finding.state, finding.found, finding.advice) for finding in findings])
    return 1 if any(finding.state == "missing" for finding in findings) else 0


def _links(as_json: bool, repository: str) -> int:
    from ckptlab.course.content import labs, starts  # here, so that doctor runs where the course cannot
    from ckptlab.course.links import as_html, as_markdown, binder_links

    found = binder_links(repository, [*labs(), *starts()])
    if as_json:
        say_json([asdict(link) for link in found])
    else:
        for line in ("Markdown", "", *as_markdown(found).splitlines(), "", "HTML", "", *as_html(found).splitlines()):
            say(line)
    return 0
