"""Texts of banks and messages as HTML: everything escaped, code and blocks of output as such, `lang` on what is translated."""

import html
import re

from ckptlab.course.languages import ENGLISH, Told, say

FENCE = re.compile(r"^```\w*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
BLOCK = "overflow-x:auto; margin:.4em 0; padding:.4em; border:1px solid var(--jp-border-color1); line-height:1.35"
INK = "color:var(--jp-content-font-color1)"


def as_html(told: Told | str) -> str:
    """Return a text as HTML; a draft translation stands below its English, and says that it is one."""
    if isinstance(told, str):
        return _element(told, None)
    if told.translation is None:
        return _element(told.english, ENGLISH)
    if not told.is_draft:
        return _element(told.translation, told.language)
    draft = html.escape(say("language.draft", "Draft translation"))
    return f"{_element(told.english, ENGLISH)}<div>{draft}: {_element(told.translation, told.language)}</div>"


def marked(mark: str, told: Told) -> str:
    """Return a text as HTML with a letter or number before it."""
    if not mark:
        return as_html(told)
    parts = f'<div style="{INK}">{html.escape(mark)}</div><div style="min-width:0">{as_html(told)}</div>'
    return f'<div style="display:flex; align-items:baseline; gap:.5em">{parts}</div>'


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
