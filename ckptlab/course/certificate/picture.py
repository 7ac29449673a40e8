"""The certificate as a picture: an SVG of plain text, and a PNG drawn from it with the fonts that lie in `fonts/`.

The picture is not what is signed: the credential baked into it is. So it says where to check, as a QR code and as a link.
It is in English. In another language kind, result and date stand below that, smaller, and once that it is a draft.
"""

import textwrap
from collections.abc import Iterable
from datetime import datetime
from html import escape
from itertools import groupby
from pathlib import Path
from unicodedata import east_asian_width

import resvg_py
import segno
from babel.dates import format_date

from ckptlab.course.certificate.credential import Facts
from ckptlab.course.languages import ENGLISH, LANGUAGES, LOCALE, Message, Told, current, tell
from ckptlab.errors import UsageError

WIDTH, HEIGHT, EDGE, QR = 1200, 848, 84, 410  # units of the drawing; the shape of a sheet of A4
LEFT, RIGHT = WIDTH - QR - 2 * EDGE - 40, WIDTH - QR - EDGE + 10  # how wide the left column is, where the right one begins
INK, QUIET, LINE = "#16202c", "#4a5868", "#1f5f8b"
FAMILY = "'DejaVu Sans', Verdana, 'Noto Sans', sans-serif"
FONTS = sorted(str(file) for file in (Path(__file__).parent / "fonts").glob("*.ttf"))


def to_svg(facts: Facts, id_: str, link: str, translations: Path = LOCALE) -> str:
    """Draw it; `link` leads to the page that checks it, and has the credential behind its "#".

    `translations` is the folder of the `.po` files; the language is that in which everything is told.

    Raises:
        UsageError: the link is too long for a QR code (2,953 bytes).
    """
    said, other = _said(facts), _other(facts, current(), translations)
    address = link.partition("#")[0]
    where = "This code and link open the page that checks the certificate and sends nothing:"
    if "://" not in address:
        where = "This code holds the certificate. The page that checks it lies beside this picture:"
    code = (_qr(link, RIGHT, 262), _lines(RIGHT, 704, 18, where, QR, fill=LINE), _lines(RIGHT, 754, 18, address, QR, fill=LINE))
    parts = (
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<path d="M24 24h{WIDTH - 48}v{HEIGHT - 48}h-{WIDTH - 48}z" fill="none" stroke="{LINE}" stroke-width="4"/>',
        _text(EDGE, 106, 26, said["kind"], fill=QUIET),
        _small(130, other.get("kind")),
        _lines(EDGE, 180, 42, facts.course, WIDTH - 2 * EDGE, bold=True),
        _text(EDGE, 312, 22, _about_name(facts), fill=QUIET),
        _lines(EDGE, 372, 44, facts.name or "not given", LEFT, bold=True, at_most=3),
        _text(EDGE, 512, 34, said["result"], bold=True),
        _small(537, other.get("result")),
        _lines(EDGE, 568, 20, facts.criteria, LEFT, fill=QUIET, at_most=3),
        _text(EDGE, 656, 24, said["date"]),
        _small(680, other.get("date")),
        _lines(EDGE, 714, 24, said["issuer"], LEFT),
        _text(EDGE, 782, 24, f"ID {id_}"),
        _about_drafts(other.values()),
        f'<a href="{escape(link)}">{"".join(code)}</a>',
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-labelledby="what says" lang="en" font-family="{FAMILY}">\n<title id="what">{escape(said["title"])}</title>\n'
        f'<desc id="says">{escape(to_words(facts, id_))}</desc>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def to_png(svg: str) -> bytes:
    """Draw an SVG at twice its size. What the fonts of this package lack (other scripts) is taken from the machine's."""
    return resvg_py.svg_to_bytes(svg_string=svg, font_files=FONTS, font_family="DejaVu Sans", zoom=2)


def to_words(facts: Facts, id_: str) -> str:
    """Say what the picture shows: its alternative text."""
    said = _said(facts)
    name = f"Name, as typed: {facts.name}." if facts.name else "No name is given."
    return f"{said['title']}. {name} {said['result']}. {facts.criteria} {said['date']}. {said['issuer']}. ID {id_}."


def _about_name(facts: Facts) -> str:
    if not facts.name:
        return "Name"
    return "Name, as typed; nobody checked it" if facts.self_issued else "Name, as typed"


def day(time: datetime, language: str) -> str:
    """Write a date as the language does."""
    return format_date(time.date(), format="long", locale=language)


def _messages(facts: Facts, language: str) -> dict[str, Message]:
    own, issued = Message("picture.own", "Self-issued certificate"), Message("picture.issued", "Certificate")
    return {
        "kind": own if facts.self_issued else issued,
        "result": Message("picture.result", "Final quiz: {percent} %", {"percent": facts.percent}),
        "date": Message("picture.date", "Issued on {day} (UTC)", {"day": day(facts.issued, language)}),
    }


def _other(facts: Facts, language: str, translations: Path) -> dict[str, Told]:
    """Return what there is in another language, by name; nothing in English."""
    known = language if language in LANGUAGES else ENGLISH
    told = {name: tell(message, known, translations) for name, message in _messages(facts, known).items()}
    return {name: one for name, one in told.items() if one.translation}


def _said(facts: Facts) -> dict[str, str]:
    said = {name: tell(message, ENGLISH).english for name, message in _messages(facts, ENGLISH).items()}
    own, other = "Self-issued: made and signed by the learner", f"Issuer, as it calls itself: {facts.issuer_name}"
    return said | {"title": f"{said['kind']}: {facts.course}", "issuer": own if facts.self_issued else other}


def _small(y: int, told: Told | None) -> str:
    """Set a text in another language in one quiet line of the left column, marked as of that language."""
    if told is None:
        return ""
    return f'<g lang="{told.language}">{_lines(EDGE, y, 16, told.translation or "", LEFT, fill=QUIET, at_most=1)}</g>'


def _about_drafts(told: Iterable[Told]) -> str:
    drafts = [LANGUAGES[one.language] for one in told if one.is_draft]
    return _text(EDGE, 808, 14, f"Small: a draft in {drafts[0]} that no native speaker has read.", fill=QUIET) if drafts else ""


def _text(x: int, y: int, size: int, text: str, fill: str = INK, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}"{weight}>{escape(text)}</text>'


def _lines(x: int, y: int, size: int, text: str, width: int, fill: str = INK, bold: bool = False, at_most: int = 2) -> str:
    """Set a text in lines, smaller where it would need more than `at_most` of them."""
    em = 1.0 if any(east_asian_width(char) in "WF" for char in text) else 0.7 if bold else 0.62
    lines = textwrap.wrap(text, int(width / (size * em)), break_on_hyphens=False)
    while len(lines) > at_most and size > 12:
        size -= 2
        lines = textwrap.wrap(text, int(width / (size * em)), break_on_hyphens=False)
    return "\n".join(_text(x, y + row * size * 4 // 3, size, line, fill, bold) for row, line in enumerate(lines))


def _qr(link: str, x: int, y: int) -> str:
    """Draw a QR code as one path, a rectangle for each run of dark modules, with the white rim that readers need."""
    try:
        rows = segno.make(link, error="l", micro=False, boost_error=False).matrix
    except ValueError:
        raise UsageError(
            f"a link of {len(link)} characters fits no QR code; the address of the page or a text is too long"
        ) from None
    path = ""
    for number, row in enumerate(rows, 4):
        at = 4
        for dark, run in groupby(row):
            size = len(list(run))
            path += f"M{at} {number}h{size}v1h-{size}z" if dark else ""
            at += size
    scale = QR / (len(rows) + 8)
    return f'<path transform="translate({x} {y}) scale({scale:.4f})" fill="#000" shape-rendering="crispEdges" d="{path}"/>'
