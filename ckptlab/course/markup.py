"""Texts of banks and messages as HTML: everything escaped, code and blocks of output as such, `lang` on what is translated.

And the headings of a table, in HTML and as lines of text.
"""

import html
import re
from collections.abc import Sequence

from ckptlab.course.languages import ENGLISH, Message, Told, tell

FENCE = re.compile(r"^```\w*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
BLOCK = "overflow-x:auto; margin:.4em 0; padding:.4em; border:1px solid var(--jp-border-color1); line-height:1.35"
BESIDE = "border-left:2px solid var(--jp-border-color1); padding-left:.6em; margin:.2em 0 .4em"
MARK = "float:left; margin-right:.6em; line-height:1.45; font-style:italic; color:var(--jp-content-font-color1)"
INK = "color:var(--jp-content-font-color1)"


def as_html(told: Told | str) -> str:
    """Return a text as HTML; a draft translation stands below its English, and says that it is one."""
    if isinstance(told, str):
        return _element(told, None)
    if told.translation is None:
        return _element(told.english, ENGLISH)
    if not told.is_draft:
        return _element(told.translation, told.language)
    mark = html.escape(tell(Message("language.draft", "Draft translation")).sure)
    draft = f'<div lang="{ENGLISH}" style="{MARK}">{mark}</div>{_element(told.translation, told.language)}'
    return f'{_element(told.english, ENGLISH)}<div style="{BESIDE}">{draft}</div>'


def marked(mark: str, told: Told) -> str:
    """Return a text as HTML with a letter or number before it."""
    if not mark:
        return as_html(told)
    parts = f'<div style="{INK}">{html.escape(mark)}</div><div style="min-width:0">{as_html(told)}</div>'
    return f'<div style="display:flex; align-items:baseline; gap:.5em">{parts}</div>'


def as_heading(told: Told) -> str:
    """Return a heading of a table as HTML; a draft stands in a second line."""
    if told.translation is None:
        return html.escape(told.english)
    other = f'<span lang="{html.escape(told.language)}">{html.escape(told.translation)}</span>'
    return f'<span lang="{ENGLISH}">{html.escape(told.english)}</span><br>{other}' if told.is_draft else other


def heading_lines(messages: Sequence[Message]) -> list[list[str]]:
    """Return the headings of a table in text: a line, and a second one of drafts if there are any."""
    told = [tell(message) for message in messages]
    drafts = [one.draft for one in told]
    return [[one.sure for one in told], *([drafts] if any(drafts) else [])]


def about_drafts(messages: Sequence[Message]) -> list[Told]:
    """Return what is said below a table whose headings have drafts; nothing if none has."""
    note = Message("table.drafts", "The second line of the headings is a draft translation.")
    return [tell(note)] if any(tell(message).draft for message in messages) else []


def _element(text: str, language: str | None) -> str:
    attribute = f' lang="{html.escape(language)}"' if language else ""
    return f'<div{attribute} style="{INK}; line-height:1.45; overflow-wrap:anywhere; white-space:normal">{_blocks(text)}</div>'


def _blocks(text: str) -> str:
    """Paragraphs, and what stands between lines of ``` as it is."""
    parts = FENCE.split(text if text.endswith("\n") else f"{text}\n")  # text, block, text, …
    return "".join(
        f'<pre tabindex="0" style="{INK}; {BLOCK}">{html.escape(part)}</pre>' if number % 2 else _paragraphs(part)
        for number, part in enumerate(parts)
    )


def _paragraphs(text: str) -> str:
    found = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    return "".join(f'<div style="margin:.25em 0">{_inline(part)}</div>' for part in found)


def _inline(text: str) -> str:
    code = r'<code style="color:inherit; background:none; border:1px solid var(--jp-border-color2); padding:0 .2em">\1</code>'
    return re.sub(r"`([^`]+)`", code, html.escape(text)).replace("\n", "<br>")
