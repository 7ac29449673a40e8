"""`ckptlab doctor`."""

from dataclasses import asdict
from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option, say, say_json, say_table
from ckptlab.doctor import examine


@click.command(cls=Door)
@json_option
@click.option("--links", is_flag=True, help="Instead give links for a course page that open each lab on Binder.")
@click.option("--repo", default="OWNER/NAME", show_default=True, help="The repository on GitHub that the links lead to.")
def doctor(as_json: bool, links: bool, repo: str) -> int:
    """Look at this machine: what works, and what to do about the rest."""
    if links:
        return _links(as_json, repo)
    findings = list(examine(Path.cwd()))
    if as_json:
        say_json([asdict(finding) for finding in findings])
    else:
        say_table([(finding.what, finding.state, finding.found, finding.advice) for finding in findings])
    return 1 if any(finding.state == "missing" for finding in findings) else 0


def _links(as_json: bool, repo: str) -> int:
    from ckptlab.course.content import labs  # here, so that doctor runs where the course cannot
    from ckptlab.course.links import as_html, as_markdown, binder_links

    found = binder_links(repo, labs())
    if as_json:
        say_json([asdict(link) for link in found])
    else:
        for line in ("Markdown", "", *as_markdown(found).splitlines(), "", "HTML", "", *as_html(found).splitlines()):
            say(line)
    return 0
