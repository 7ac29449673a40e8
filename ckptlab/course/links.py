"""Links that open the labs on Binder, for a course page. Nothing is fetched: whether Binder has the repository is not asked.

The labs are in English. What is in another language is a notebook of its own, and gets its own link as soon as it is there.
"""

import html
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ckptlab.errors import UsageError


@dataclass(frozen=True, slots=True)
class Link:
    """A lab's title and the address that opens a learner's copy of it."""

    title: str
    url: str


def binder_links(repository: str, notebooks: Iterable[Path]) -> list[Link]:
    """Give a link to each notebook's copy in `my-labs/`, as Binder makes it of `repository` ("OWNER/NAME" on GitHub).

    Raises:
        UsageError: `repository` is not of that form.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
        raise UsageError(f"repository {repository!r}: expected OWNER/NAME, as in the repository's address on GitHub")
    return [Link(_title(notebook), _url(repository, notebook.name)) for notebook in notebooks]


def as_markdown(links: Iterable[Link]) -> str:
    """Write a list for a page in Markdown."""
    return "\n".join(f"- [{link.title}]({link.url})" for link in links)


def as_html(links: Iterable[Link]) -> str:
    """Write the same list for a page in HTML."""
    items = (f'  <li><a href="{html.escape(link.url)}">{html.escape(link.title)}</a></li>' for link in links)
    return "\n".join(("<ul>", *items, "</ul>"))


def _url(repository: str, name: str) -> str:
    return f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath={quote(f'lab/tree/my-labs/{name}', safe='')}"


def _title(notebook: Path) -> str:
    """Give the first heading of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    heading = re.search(r"^# *(.+)$", text, re.MULTILINE)
    return heading[1].strip() if heading else notebook.stem
