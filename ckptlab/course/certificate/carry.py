"""How a certificate travels: as JSON, baked into an SVG or PNG picture as Open Badges 3.0 says, or in a link behind its "#".

Reading takes all of these, by their first bytes, and the page that checks certificates when it holds one. It gives JSON that is
not yet parsed. Nothing is drawn, fetched or expanded beyond `MOST_BYTES`. An SVG is searched, not read as XML: no entity is
ever resolved.
"""

import base64
import re
import struct
import zlib
from collections.abc import Iterator

from ckptlab.errors import FormatError

MOST_BYTES = 64 << 10  # of a certificate's JSON; one of ours has about 2,500
MOST_FILE_BYTES = 16 << 20  # of a picture
PNG = b"\x89PNG\r\n\x1a\n"
KEYWORD = b"openbadgecredential"
NAMESPACE = "https://purl.imsglobal.org/ob/v3p0"
_OPENING = re.compile(rb"<openbadges:credential\b[^<>]*>[ \t\r\n]*<!\[CDATA\[")
_IN_PAGE = re.compile(rb'<!doctype html>.*<script type="application/json" id="credential">([^<]+)</script>', re.DOTALL)
_CLOSING = re.compile(rb"\]\]>[ \t\r\n]*</openbadges:credential>")


def to_fragment(document: bytes) -> str:
    """Return what stands behind the "#" of a link: raw deflate of the JSON, in base64url."""
    packer = zlib.compressobj(9, wbits=-15)
    return base64.urlsafe_b64encode(packer.compress(document) + packer.flush()).decode().rstrip("=")


def bake_svg(svg: str, document: bytes) -> str:
    """Return the SVG with the JSON as first child of its first element."""
    json = document.decode().replace("]]>", "]]\\u003e")  # can only stand within a text, and would end the section
    start, end = svg.index("<svg") + len("<svg"), svg.index(">", svg.index("<svg"))
    credential = f"<openbadges:credential><![CDATA[{json}]]></openbadges:credential>"
    return f'{svg[:start]} xmlns:openbadges="{NAMESPACE}"{svg[start : end + 1]}\n{credential}{svg[end + 1 :]}'


def bake_png(png: bytes, document: bytes) -> bytes:
    """Return the PNG with the JSON in a text chunk behind its header, not compressed."""
    end_of_header = len(PNG) + 25
    body = KEYWORD + b"\0\0\0\0\0" + document  # not compressed, no language
    chunk = b"iTXt" + body
    packed = struct.pack(">I", len(body)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return png[:end_of_header] + packed + png[end_of_header:]


def unpack(data: bytes) -> bytes:
    """Return the JSON in a file's content or a link.

    Raises:
        FormatError: it has none, or more than one, or is too large.
    """
    if len(data) > MOST_FILE_BYTES:
        raise FormatError(f"more than {MOST_FILE_BYTES} bytes; a certificate is smaller")
    if data.startswith(PNG):
        found = _the_only(list(_png_texts(data)), "PNG")
    elif data.lstrip().startswith(b"{"):
        found = data
    elif page := _IN_PAGE.match(data):
        found = page[1]
    elif b"<svg" in data:
        found = _the_only(list(_svg_texts(data)), "SVG")
    else:
        found = _from_link(data)
    if len(found) > MOST_BYTES:
        raise FormatError(f"its JSON has {len(found)} bytes, expected at most {MOST_BYTES}")
    return found


def _the_only(found: list[bytes], what: str) -> bytes:
    if len(found) != 1:
        raise FormatError(
            f"the {what} picture holds {len(found) or 'no'} certificates, expected one; many programs drop it when they save a "
            "picture: ask for the JSON file or the link"
        )
    return found[0]


def _svg_texts(data: bytes) -> Iterator[bytes]:
    """Give the certificates in an SVG. Where an opening has no closing behind it, no later one has: the search is over."""
    at = 0
    while (begin := _OPENING.search(data, at)) and (end := _CLOSING.search(data, begin.end())):
        yield data[begin.end() : end.start()]
        at = end.end()


def _png_texts(data: bytes) -> Iterator[bytes]:
    """Give the certificates in a PNG's text chunks. A wrong length or sum ends the picture."""
    at = len(PNG)
    while at + 12 <= len(data):
        (size,), kind = struct.unpack_from(">I", data, at), data[at + 4 : at + 8]
        body, end = data[at + 8 : at + 8 + size], at + 8 + size
        if data[end : end + 4] != struct.pack(">I", zlib.crc32(kind + body)):
            raise FormatError(f"the PNG picture is damaged at byte {at}")
        if kind == b"iTXt" and body.startswith(KEYWORD + b"\0"):
            if not body.startswith(KEYWORD + b"\0\0\0\0\0"):
                raise FormatError("the PNG picture has its certificate compressed or with a language, which Open Badges do not")
            yield body[len(KEYWORD) + 5 :]
        at = end + 4


def _from_link(data: bytes) -> bytes:
    fragment = data.strip().rpartition(b"#")[2]
    if b"#" not in data or not re.fullmatch(rb"[0-9A-Za-z_-]+", fragment):
        raise FormatError("neither JSON, SVG, PNG nor a link with a certificate behind its '#'; a cut link ends like this too")
    unpacker = zlib.decompressobj(wbits=-15)
    try:
        found = unpacker.decompress(base64.urlsafe_b64decode(fragment + b"=" * (-len(fragment) % 4)), MOST_BYTES + 1)
    except (ValueError, zlib.error):
        raise FormatError("the link is damaged or cut: what is behind its '#' cannot be unpacked") from None
    if len(found) <= MOST_BYTES and (not unpacker.eof or unpacker.unused_data):
        raise FormatError("the link is cut or something was added to it: what is behind its '#' does not end as it should")
    return found
