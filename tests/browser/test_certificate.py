"""verify.html in Chromium: the page that a stranger opens."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import KEY, NOW, OTHER_KEY, hostile_texts, link_to, signed, single_changes, to_bytes, unsigned

from ckptlab.course.certificate import carry, proof
from ckptlab.course.certificate.making import issue
from ckptlab.course.certificate.page import make_page
from ckptlab.course.certificate.short_id import short_id
from ckptlab.course.certificate.verification import verify

pytestmark = pytest.mark.browser

CHECK = """([texts, now]) => Promise.all(texts.map(async (text) => {
    const verdict = await check(text, now);
    return [verdict.state, verdict.id ?? null];
}))"""
STATES = {"unknown": {"self", "unknown"}, "withdrawn": {"expired"}, "invalid": {"invalid"}}


@pytest.fixture
def site(tmp_path: Path, monkeypatch) -> Path:
    """A folder as an instructor serves it, opened from the disk."""
    (tmp_path / "verify.html").write_text(make_page(), encoding="utf-8")
    return tmp_path


@pytest.fixture
def requests(page) -> Iterator[list[str]]:
    """What the page asks for; and nothing of it may be against its own content policy, which browsers tell on the console."""
    asked: list[str] = []
    told: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: told.append(message.text))
    yield asked
    assert told == []


def states(page, texts: list[bytes | str]) -> list[tuple[str, str | None]]:
    decoded = [text.decode(errors="surrogatepass") if isinstance(text, bytes) else text for text in texts]
    return [tuple(answer) for answer in page.evaluate(CHECK, [decoded, NOW.timestamp() * 1000])]


def test_the_page_refuses_every_single_change_and_takes_what_is_not_signed(page, site: Path) -> None:
    page.goto((site / "verify.html").as_uri())
    changes = dict(single_changes(signed()))
    answers = states(page, [to_bytes(changed) for changed in changes.values()])
    assert [what for what, answer in zip(changes, answers, strict=True) if answer != ("invalid", None)] == []
    same = [json.dumps(signed(), indent=4), json.dumps(dict(reversed(signed().items()))), to_bytes(signed())]
    assert states(page, same) == [("self", short_id(proof.digest(signed())))] * 3


def test_the_page_and_the_command_give_the_same_verdicts(page, site: Path) -> None:
    from test_certificate_proof import VECTOR

    page.goto((site / "verify.html").as_uri())
    dated = {**unsigned(), "validUntil": "2026-02-01T00:00:00Z"}
    texts = [
        to_bytes(signed(unsigned(issuer_name="Example University"))),
        to_bytes(signed(unsigned(), OTHER_KEY)),
        to_bytes(VECTOR),
    ]
    texts += [to_bytes(signed(dated)), to_bytes(signed({**dated, "validUntil": "2026-01-30T09:00:00Z"}))]
    texts += [to_bytes(signed({**unsigned(), "validFrom": "2026-01-30T10:05:00Z"}))]
    texts += [to_bytes(signed({**unsigned(), "validUntil": "2026-02-31T09:00:00Z"}))]
    texts += [to_bytes(signed({**unsigned(), "validFrom": "2026-01-30T11:00:00Z"}))]
    texts += [text for text in hostile_texts().values() if b"\xff" not in text and b"\xed\xa0" not in text]
    for text, (state, id_) in zip(texts, states(page, texts), strict=True):
        verdict = verify(text, NOW, {})
        assert state in STATES[verdict.outcome], text[:200]
        assert id_ == verdict.id
    parsed = "(text) => isSigned(parse(text))"
    assert page.evaluate(parsed, to_bytes(VECTOR).decode())
    assert not page.evaluate(parsed, to_bytes(VECTOR).decode().replace("School of Examples", "School of Example"))


@pytest.mark.parametrize("how", ["link", "json", "svg", "png"])
def test_a_stranger_sees_who_what_when_and_how_far_to_trust_it(
    page, site: Path, requests: list[str], how: str, photograph
) -> None:
    from certificates import claim

    name = "<img src=x onerror=alert(1)> Ṅwankwọ"
    made = issue([claim(name)], site, KEY, "Example <b>University</b>")[0]
    address = (site / "verify.html").as_uri()
    if how == "link":
        page.goto(address + "#" + made.link.partition("#")[2])
    else:
        page.goto(address)
        assert page.locator("#headline").inner_text() == "No certificate yet"
        file = {"json": "credential.json", "svg": "certificate.svg", "png": "certificate.png"}[how]
        page.get_by_label("Choose a certificate").set_input_files(made.folder / file)
    page.get_by_role("status").get_by_text("Unchanged; this page does not know the issuer").wait_for()
    facts = page.locator("#facts").inner_text()
    for said in (
        name,
        "Example <b>University</b> (as it calls itself)",
        "Final quiz: 92 %",
        "(UTC, by the issuer's clock)",
        made.id,
    ):
        assert said in facts
    assert "Anybody can make a key" in page.locator("#trust").inner_text()
    assert "this page cannot check it" in page.locator("#not").inner_text()
    assert page.locator("img, b").count() == 0
    page.get_by_label("The ID that you were given").fill(made.id.lower().replace("-", " "))
    assert page.locator("#compared").inner_text() == f"The same: {made.id} is this certificate."
    page.get_by_label("The ID that you were given").fill(made.id[:-1] + ("0" if made.id[-1] != "0" else "1"))
    assert "Group 5 of five differs" in page.locator("#compared").inner_text()
    assert [url for url in requests if not url.startswith("file:")] == []
    photograph(page, f"certificate-{how}")


def test_a_certificate_of_a_learner_opens_on_itself_and_one_changed_letter_is_refused(
    page, site: Path, monkeypatch, photograph
) -> None:
    from certificates import claim

    from ckptlab.course.certificate.making import make

    monkeypatch.setenv("CKPTLAB_HOME", str(site / "home"))
    made = make(claim("Ọlụchi </script><img src=x> @SCRIPT@"), site)
    page.goto((made.folder / "index.html").as_uri())
    page.get_by_role("heading", name="Unchanged, and self-issued").wait_for()
    assert "Ọlụchi </script><img src=x> @SCRIPT@" in page.locator("#facts").inner_text()
    assert page.locator("img").count() == 0
    assert "open answer keys and nobody watching" in page.locator("#trust").inner_text()
    changed = (made.folder / "credential.json").read_text().replace("Ọlụchi", "Ọlụchị")
    page.goto((made.folder / "index.html").as_uri() + "#" + link_to(changed.encode()).partition("#")[2])
    page.get_by_role("heading", name="Not valid").wait_for()
    assert "the signature does not fit" in page.locator("#why").inner_text()
    assert page.locator("#about").is_hidden()
    photograph(page, "certificate-changed")


@pytest.mark.parametrize(
    ("fragment", "reason"),
    [
        ("%3Cscript%3E", "holds no certificate"),
        (carry.to_fragment(to_bytes(signed()))[:-40], "damaged or was cut short"),
        (carry.to_fragment(to_bytes(signed())) + "AAAA", "damaged or was cut short"),
        (link_to(bytes(100 << 20)).partition("#")[2], "larger than any certificate"),
    ],
)
def test_a_link_that_is_cut_or_a_bomb_is_told_in_words(page, site: Path, fragment: str, reason: str) -> None:
    page.goto("about:blank")
    page.goto((site / "verify.html").as_uri() + "#" + fragment)
    page.get_by_role("heading", name="Not valid").wait_for()
    assert reason in page.locator("#why").inner_text()


def test_a_bomb_is_not_unpacked_in_the_page(page, site: Path) -> None:
    page.goto((site / "verify.html").as_uri())
    unpacked = """async (fragment) => {
        let size = 0;
        const read = ReadableStreamDefaultReader.prototype.read;
        ReadableStreamDefaultReader.prototype.read = async function () {
            const part = await read.call(this);
            size += part.done ? 0 : part.value.length;
            return part;
        };
        return [await inflate(fragment).catch((error) => error.reason), size];
    }"""
    reason, size = page.evaluate(unpacked, link_to(bytes(100 << 20)).partition("#")[2])
    assert reason == "large"
    assert size < 1 << 20


OLD = "crypto.subtle.importKey = async () => { throw new DOMException('', 'NotSupportedError'); }"


@pytest.mark.parametrize(
    ("scheme", "script", "said"),
    [
        ("https", "", "Unchanged, and self-issued"),
        ("http", "", "only on pages that came by https or from a disk"),
        ("https", OLD, "too old for Ed25519"),
    ],
)
def test_no_server_sees_the_certificate_and_a_browser_that_cannot_check_it_says_so(
    page, scheme: str, script: str, said: str
) -> None:
    asked: list[str] = []

    def serve(route) -> None:
        asked.append(route.request.url)
        route.fulfill(body=make_page(), content_type="text/html; charset=utf-8")

    new = page.context.new_page()
    new.route("**/*", serve)
    new.add_init_script(script)
    new.goto(f"{scheme}://course.example/verify.html#{carry.to_fragment(to_bytes(signed()))}")
    new.get_by_role("status").get_by_text(said).wait_for()
    assert set(asked) <= {f"{scheme}://course.example/verify.html", f"{scheme}://course.example/favicon.ico"}
    new.close()


def test_a_language_is_a_table_that_is_switched_on_the_page(page, site: Path) -> None:
    (site / "ig.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
        'msgctxt "verify.title"\nmsgid "Certificate check"\nmsgstr "[[Çértïfïcåté çhéçk]]"\n\n'
        '#, fuzzy\nmsgctxt "verify.when.issuer"\nmsgid "{date} (UTC, by the issuer\'s clock)"\nmsgstr "{date} [[ÜTÇ]]"\n'
    )
    (site / "two.html").write_text(make_page(to_bytes(signed()), site), encoding="utf-8")
    page.goto((site / "two.html").as_uri())
    page.get_by_label("Language").select_option("ig")
    assert page.get_by_role("heading", level=1).inner_text() == "[[Çértïfïcåté çhéçk]]"
    assert page.locator("#headline").inner_text() == "Unchanged, and self-issued"  # English where a text is missing
    spoken = page.evaluate(LANGUAGES)
    title = "[[Çértïfïcåté çhéçk]]"
    assert [text for text, lang in spoken if lang == "ig"] == [title, title, "30 Jenụwarị 2026 [[ÜTÇ]]"]
    assert ["January 30, 2026 (UTC, by the issuer's clock)", "en"] in spoken
    assert ["Draft translation: ", "en"] in spoken
    assert ["Ọlụchi Ṅwankwọ-Ịgwe", ""] in spoken  # a stranger's text, in whatever language


LANGUAGES = """() => {
    const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) found.push(walker.currentNode);
    return found.filter((text) => text.data.trim() && !text.parentElement.closest('script, style, noscript, option'))
        .map((text) => [text.data, text.parentElement.closest('[lang]').lang]);
}"""  # every text of the page with the language that it is marked as


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_on_a_phone_and_reached_by_keyboard(page, site: Path, scheme: str, photograph) -> None:
    (site / "own.html").write_text(make_page(to_bytes(signed())), encoding="utf-8")
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto((site / "own.html").as_uri())
    page.get_by_role("heading", name="Unchanged, and self-issued").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert min(page.evaluate(CONTRASTS)) >= 4.5
    reached = []
    for _ in range(3):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached == ["language", "typed", "file"]
    photograph(page, f"certificate-{scheme}")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 900})


CONTRASTS = """() => {
    const light = (rgb) => {
        const [r, g, b] = rgb.match(/[0-9.]+/g).map((c) => c / 255)
            .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const paper = light(getComputedStyle(document.body).backgroundColor);
    return [...document.querySelectorAll('h1, h2, p, dt, dd, li, label')].map((text) => light(getComputedStyle(text).color))
        .map((text) => (Math.max(text, paper) + 0.05) / (Math.min(text, paper) + 0.05));
}"""  # of every text with the page, as WCAG 2.2 reckons it
