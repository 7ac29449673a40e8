import base64
import io
import json
import struct
import tracemalloc
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path

import pytest
from certificates import KEY, NOW, claim, link_to, signed, to_bytes, unsigned
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from resvg_py import svg_to_bytes

from ckptlab.course.certificate import carry, picture, proof
from ckptlab.course.certificate.credential import read_facts
from ckptlab.course.certificate.short_id import differing_groups, parse_id, short_id
from ckptlab.course.certificate.verification import verify
from ckptlab.course.languages import use
from ckptlab.errors import FormatError, UsageError

HOSTILE_NAME = "]]></svg><script>alert(1)</script>&amp;' \"@SCRIPT@"
SVG = "{http://www.w3.org/2000/svg}"
IN_FRAGMENT = "https://example.edu/verify.html#"


@pytest.fixture(scope="module")
def pictures() -> tuple[dict, str, bytes]:
    """A certificate with a hostile name, and its two pictures."""
    document = signed(unsigned(HOSTILE_NAME))
    data = proof.canonical(document)
    svg = picture.to_svg(read_facts(document), short_id(proof.digest(document)), IN_FRAGMENT + carry.to_fragment(data))
    return document, carry.bake_svg(svg, data), carry.bake_png(picture.to_png(svg), data)


def test_a_picture_holds_the_certificate_where_open_badges_says(pictures) -> None:
    document, svg, png = pictures
    first = ElementTree.fromstring(svg)[0]
    assert first.tag == "{https://purl.imsglobal.org/ob/v3p0}credential"
    assert json.loads(first.text or "") == document
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        assert json.loads(image.text["openbadgecredential"]) == document


def test_a_certificate_is_the_same_from_json_svg_png_and_link(pictures) -> None:
    document, svg, png = pictures
    link = IN_FRAGMENT + carry.to_fragment(to_bytes(document))
    verdicts = [verify(data, NOW, {}) for data in (to_bytes(document), svg.encode(), png, link.encode() + b"\n")]
    assert {(verdict.outcome, verdict.facts.name, verdict.id) for verdict in verdicts} == {
        ("unknown", HOSTILE_NAME, short_id(proof.digest(document)))
    }


def test_what_a_link_holds_is_what_deflate_of_another_library_gives() -> None:
    fragment = carry.to_fragment(to_bytes(signed()))
    packed = base64.urlsafe_b64decode(fragment + "=" * (-len(fragment) % 4))
    assert json.loads(zlib.decompress(packed, wbits=-15)) == signed()


def test_a_name_is_shown_as_text_and_said_in_words(pictures) -> None:
    document, svg, _ = pictures
    root = ElementTree.fromstring(svg)
    texts = "".join("".join(element.itertext()) for element in root.iter(SVG + "text")).replace(" ", "")  # wrapped anywhere
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg", "title", "desc", "rect", "path", "text", "a", "{https://purl.imsglobal.org/ob/v3p0}credential"
    }  # fmt: skip
    words = root.findtext(SVG + "desc") or ""
    self_issued = "Self-issued: made and signed by the learner"
    for said in (HOSTILE_NAME, "92 %", "January 30, 2026", self_issued, short_id(proof.digest(document))):
        assert said in words
        assert said.replace(" ", "") in texts
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", "what says")


def test_drafts_stand_small_below_the_english_are_said_to_be_some_and_stay_in_their_column(tmp_path: Path) -> None:
    long = "Shahaadada uu ardaygu isagu bixiyay oo aan cid kale weli ay xaqiijin"
    (tmp_path / "so.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
        f'#, fuzzy\nmsgctxt "picture.own"\nmsgid "Self-issued certificate"\nmsgstr "{long}"\n\n'
        f'#, fuzzy\nmsgctxt "picture.result"\nmsgid "Final quiz: {{percent}} %"\nmsgstr "{long}: {{percent}} %"\n\n'
        '#, fuzzy\nmsgctxt "picture.date"\nmsgid "Issued on {day} (UTC)"\nmsgstr "La bixiyay {day} (UTC)"\n'
    )
    use("so")
    svg = picture.to_svg(read_facts(signed()), "ID", f"{IN_FRAGMENT}a", tmp_path)
    root = ElementTree.fromstring(svg)
    groups = [(group.get("lang"), "".join(group.itertext())) for group in root.iter(f"{SVG}g")]
    assert groups == [("so", long), ("so", f"{long}: 92 %"), ("so", "La bixiyay Janaayo 30, 2026 (UTC)")]
    assert svg.count("a draft in Soomaali that no native speaker has read") == 1
    assert "Self-issued certificate" in svg
    with Image.open(io.BytesIO(picture.to_png(svg))) as image:
        column = image.convert("L").crop((2 * (picture.EDGE + picture.LEFT), 2 * 500, 2 * picture.RIGHT, 2 * 815))
        assert column.getextrema() == (255, 255)  # nothing reaches beyond the left one


def test_the_letters_of_igbo_are_drawn_on_a_machine_without_fonts() -> None:
    def drawn(letter: str) -> bytes:
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><text y="30" font-size="30">{letter}</text></svg>'
        )
        return svg_to_bytes(svg_string=svg, font_files=picture.FONTS, font_family="DejaVu Sans", skip_system_fonts=True)

    letters = "ịọụṅỊỌỤṄiounIOUN"
    images = {drawn(letter) for letter in [*letters, "\ue000", " "]}  # the last two: what no font has, and nothing
    assert len(images) == len(letters) + 2
    assert drawn("o\u0323") not in {drawn("o"), drawn("\ue000")}  # base letter and mark


@pytest.mark.parametrize(
    "cut", ["two in an SVG", "none in an SVG", "many openings", "two in a PNG", "none in a PNG", "compressed", "damaged", "cut"]
)
def test_a_picture_with_no_two_or_a_damaged_certificate_is_refused(pictures, cut: str) -> None:
    _, svg, png = pictures
    begin, end = svg.index("<openbadges:credential>"), svg.index("</openbadges:credential>") + len("</openbadges:credential>")
    compressed = PngInfo()
    compressed.add_itxt("openbadgecredential", "{}", zip=True)
    again = io.BytesIO()
    Image.new("1", (1, 1)).save(again, "PNG", pnginfo=compressed)
    data = {
        "two in an SVG": svg.replace("</openbadges:credential>", "</openbadges:credential>" + svg[begin:end]).encode(),
        "none in an SVG": (svg[:begin] + svg[end:]).encode(),
        "many openings": b"<svg>" + b"<openbadges:credential><![CDATA[" * 100_000,  # a search from each would take an hour
        "two in a PNG": carry.bake_png(png, b"{}"),
        "none in a PNG": b"".join(png.partition(b"IDAT")[::2]).replace(carry.KEYWORD, b"somethingelse......"),
        "compressed": again.getvalue(),
        "damaged": png.replace(b'"hashed":false', b'"hashed":truee'),
        "cut": png[:200],
    }[cut]
    with pytest.raises(FormatError):
        carry.unpack(data)


def test_what_would_unpack_to_a_hundred_megabytes_is_not_unpacked() -> None:
    bomb = link_to(bytes(100 << 20)).encode()
    tracemalloc.start()
    with pytest.raises(FormatError, match="expected at most 65536"):
        carry.unpack(bomb)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 << 20


@pytest.mark.parametrize("end", ["", "x", "!", "AAAA", "%41"])
def test_a_link_that_is_cut_or_has_more_behind_it_is_refused(end: str) -> None:
    link = IN_FRAGMENT + carry.to_fragment(to_bytes(signed()))
    with pytest.raises(FormatError):
        carry.unpack((link + end if end else link[:-30]).encode())


def test_a_chunk_that_claims_four_gigabytes_is_damage() -> None:
    with pytest.raises(FormatError):
        carry.unpack(carry.PNG + struct.pack(">I", 2**32 - 1) + b"iTXt" + carry.KEYWORD)


def test_an_id_is_read_as_people_type_it() -> None:
    id_ = short_id(bytes(range(1, 33)))
    assert id_ == "0410-6105-0R3G-G28A-1C60"
    for typed in (
        id_.lower(),
        id_.replace("-", ""),
        " 0410 6105 0r3g g28a 1c60",
        "O4lO-61O5-or3g-g28a-ic6o",
    ):
        assert parse_id(typed) == id_
    for typed in ("", id_[:-1], id_ + "0", id_.replace("G", "U"), "O" * 21):
        assert parse_id(typed) is None
    assert differing_groups(id_, id_.replace("R3", "3R")) == [3]


def test_an_id_names_what_is_said_not_when_it_was_signed() -> None:
    document = signed()
    again = proof.sign(unsigned(), KEY, "2026-12-01T00:00:00Z")
    assert again["proof"] != document["proof"]
    assert short_id(proof.digest(again)) == short_id(proof.digest(document))
    other = signed(unsigned("somebody else"))
    assert len(differing_groups(short_id(proof.digest(other)), short_id(proof.digest(document)))) >= 4


def test_texts_that_no_picture_can_show_make_no_claim() -> None:
    for name in ("two\nlines", "a\0", "\u202eturned", "x" * 101, "\x1b[2J", "\ufffe", "\u061cturned"):
        with pytest.raises(UsageError, match="name"):
            claim(name)
    assert claim(" O\u0323lu\u0323chi  B ").name == "Ọlụchi B"
