"""The labs as pages, on a phone and on a large screen, light and dark, without scripts, and by the keyboard alone."""

import json
from pathlib import Path

import pytest
from notebook_page import PAINTED, outputs_of

from ckptlab.course.content import labs
from ckptlab.course.editions.__main__ import main

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
FIGURE = "application/vnd.plotly.v1+json"
SIDEWAYS = """() => [...document.querySelectorAll('main > .wide:has(th:nth-child(5)), .highlight pre')]
    .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.textContent.slice(0, 40))"""
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
OUTSIDE = """(figure) => [...figure.querySelectorAll('text')].map((text) => [text, text.getBoundingClientRect()])
    .filter(([text, box]) => box.width && (box.left < 0 || box.right > document.documentElement.clientWidth))
    .map(([text]) => text.textContent)"""
CONTRASTS = """() => {
    const channels = (colour) => colour.match(/[0-9.]+/g).map(Number);
    const light = (colour) => channels(colour).slice(0, 3).map((c) => c / 255)
        .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (element) => {
        const own = getComputedStyle(element).backgroundColor;
        return (channels(own)[3] ?? 1) ? own : ground(element.parentElement);
    };
    const groups = '.g-gtitle, .xtick, .ytick, .g-xtitle, .g-ytitle, .legend';
    return [...document.querySelectorAll(`main :is(p, span, a, summary, td, pre), .js-plotly-plot :is(${groups}) text`)]
        .filter((element) => element.textContent.trim() && !element.closest('details:not([open]) > :not(summary)'))
        .map((element) => {
            const style = getComputedStyle(element);
            const [text, page] = [light(element.tagName === 'text' ? style.fill : style.color), light(ground(element))];
            return [(Math.max(text, page) + 0.05) / (Math.min(text, page) + 0.05), element.textContent.slice(0, 40)];
        });
}"""  # of texts with what they stand on, as WCAG 2.2 reckons it


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("html")
    main(["html", str(folder)])
    return folder


@pytest.fixture
def asked(page) -> list[str]:
    """All addresses that the page asks for."""
    found: list[str] = []
    page.on("request", lambda request: found.append(request.url))
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_fits_the_screen_can_be_read_and_asks_for_nothing_else(
    html: Path, page, asked: list[str], photograph, width: int, scheme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    for path in sorted(html.glob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate(TOO_WIDE) <= 0, path.name
        assert page.evaluate(SIDEWAYS) == [], path.name
        low = [text for contrast, text in page.evaluate(CONTRASTS) if contrast < 4.5]
        assert low == [], path.name
        assert [figure.evaluate(OUTSIDE) for figure in page.locator(".js-plotly-plot").all() if figure.evaluate(OUTSIDE)] == []
        photograph(page, f"{path.stem}-{width}-{scheme}")
    assert [address for address in asked if not address.startswith((html.as_uri(), "data:", "blob:"))] == []


@pytest.mark.parametrize("lab", labs(), ids=lambda path: path.stem)
def test_each_figure_is_drawn_and_without_scripts_its_words_stand_there(html: Path, page, lab: Path) -> None:
    cells = json.loads(lab.read_text())["cells"]
    page.goto((html / f"{lab.stem}.html").as_uri())
    figures = page.locator(".figure")
    assert figures.count() == outputs_of(cells, FIGURE)
    assert [figure.inner_text()[:60] for figure in figures.all() if not figure.evaluate(PAINTED)] == []
    assert figures.locator("pre").count() == 0
    page.route("**/*.js", lambda route: route.abort())
    page.reload()
    page.unroute("**/*.js")
    there = [figure.inner_text() for figure in figures.all()]
    assert there == ["".join(data["text/plain"]) for cell in cells for data in figure_data(cell)]


def figure_data(cell: dict) -> list[dict]:
    return [output["data"] for output in cell.get("outputs", ()) if FIGURE in output.get("data", ())]


def test_the_keyboard_reaches_links_folds_and_what_scrolls(html: Path, page) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto((html / "02_shards.html").as_uri())
    page.wait_for_function("() => document.querySelector('pre[tabindex]')")
    seen = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        tag = page.evaluate("document.activeElement.tagName")
        if tag == "PRE" and tag not in seen:
            page.keyboard.press("ArrowRight")
            page.wait_for_function("() => document.activeElement.scrollLeft > 0")
        if tag == "SUMMARY" and tag not in seen:
            page.keyboard.press("Enter")
            page.wait_for_function("() => document.activeElement.parentElement.open")
        seen.add(tag)
    assert {"A", "PRE", "SUMMARY"} <= seen
