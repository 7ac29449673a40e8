"""A quiz in JupyterLab: failed and passed by the keyboard alone, reloaded in the middle, on the dark theme."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkouts import check_out, opened
from notebook_page import AREA, TOO_WIDE, Notebook
from small_bank import TEXT, put_course

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
NAME = "quiz.ipynb"
CELL = 'quiz("02")'
CONTRASTS = """() => {
    const light = (rgb) => {
        const [r, g, b] = rgb.match(/[0-9.]+/g).map((c) => c / 255)
            .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const under = (element) => {
        const colour = getComputedStyle(element).backgroundColor;
        return /, 0\\)|transparent/.test(colour) && element.parentElement ? under(element.parentElement) : colour;
    };
    return [...document.querySelectorAll('.jp-OutputArea :is(button, code, pre, div, label, p)')]
        .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && !e.disabled)
        .map((e) => [light(getComputedStyle(e).color), light(under(e)), e.innerText.slice(0, 40)])
        .map(([one, other, text]) => [(Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05), text])
        .filter(([contrast]) => contrast < 4.5);
}"""  # visible texts of an output that have less contrast with what is under them than WCAG 2.2 asks


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Iterator[tuple[Path, str]]:
    """A course with one small bank, and a notebook with its quiz."""
    folder = tmp_path_factory.mktemp("course")
    put_course(folder, TEXT.partition("  - id: rows-of-a-rank")[0])
    notebook = json.loads((folder / "labs" / NAME).read_text())
    notebook["cells"] = [cell for cell in notebook["cells"] if cell["id"] == "final"]
    notebook["cells"][0]["source"] = f"from ckptlab.course import quiz\n\n{CELL}"
    (folder / "labs" / NAME).write_text(json.dumps(notebook))
    with opened(folder, check_out(folder)) as (address, _):
        yield folder, address


@pytest.fixture(scope="module")
def quiz(course, page) -> Notebook:
    notebook = Notebook(page, *course, NAME)
    notebook.run_all()
    return notebook


def text(quiz: Notebook) -> str:
    return quiz.cell(CELL).locator(AREA).inner_text()


def wait_for(quiz: Notebook, words: str) -> None:
    try:
        quiz.cell(CELL).locator(AREA).get_by_text(words).first.wait_for(timeout=20_000)
    except Exception:
        raise AssertionError(f"{words!r} does not come; there is\n{text(quiz)}") from None


def focused(quiz: Notebook) -> str:
    return quiz.page.evaluate("document.activeElement.innerText || document.activeElement.tagName")


def press(quiz: Notebook, label: str, key: str = "Space") -> None:
    """Go to a button by Tab alone, forwards from where the focus is, and press it."""
    for _ in range(40):
        if focused(quiz) == label:
            quiz.page.keyboard.press(key)
            return
        quiz.page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not lead to {label!r}; there is\n{text(quiz)}")


def rows(quiz: Notebook) -> list[str]:
    """Return the texts beside the buttons, as they stand."""
    boxes = quiz.cell(CELL).locator(".widget-hbox:has(.widget-html):visible")
    return [box.locator(".widget-html").inner_text().strip() for box in boxes.all()]


def choose(quiz: Notebook, *wanted: str) -> None:
    for words in wanted:
        press(quiz, f"Choose {'ABC'[rows(quiz).index(words)]}")
        quiz.page.wait_for_timeout(300)


def write(quiz: Notebook, answer: str) -> None:
    assert focused(quiz) == "INPUT"
    quiz.page.keyboard.type(answer)
    press(quiz, "Check my answer")


def sort(quiz: Notebook) -> None:
    """Bring each item to its place; the focus goes along with what is moved."""
    for place, item in enumerate(("write", "sync", "rename", "sync the parent"), start=1):
        at = [row.split()[-1] if " the" not in row else "sync the parent" for row in rows(quiz)].index(item) + 1
        for number in range(at, place, -1):
            if number == at:
                go_to(quiz, f"{number} up")
            assert focused(quiz) == f"{number} up"
            quiz.page.keyboard.press("Space")
            quiz.page.wait_for_timeout(300)
    press(quiz, "Check my answer")


def go_to(quiz: Notebook, label: str) -> None:
    """Go to a button by Tab, or by Shift and Tab, whichever leads there."""
    for key, times in (("Tab", 10), ("Shift+Tab", 25)):
        for _ in range(times):
            if focused(quiz) == label:
                return
            quiz.page.keyboard.press(key)
    raise AssertionError(label)


def match(quiz: Notebook) -> None:
    letter = {right: re.search(rf"^([AB])\.\s+{right}$", text(quiz), re.MULTILINE)[1] for right in ("1", "8")}
    for number, right in enumerate("181", start=1):
        press(quiz, f"{number}{letter[right]}")
        quiz.page.wait_for_timeout(300)
    press(quiz, "Check my answer")


def go_on(quiz: Notebook, told: str, label: str = "Next question") -> None:
    """Read what the answer is worth; the focus is on the next step then."""
    wait_for(quiz, told)
    quiz.page.wait_for_function("label => document.activeElement.innerText === label", arg=label)
    quiz.page.keyboard.press("Enter")


def asked(quiz: Notebook, number: int, right: int) -> None:
    wait_for(quiz, f"Question {number} of 6, {right} right")
    quiz.page.wait_for_timeout(500)  # for the focus, which comes after the texts


def start(quiz: Notebook) -> None:
    """Run the cell and begin, or go on, by the keyboard."""
    shown = quiz.run(quiz.cell(CELL))
    quiz.page.keyboard.press("Escape")
    press(quiz, "Begin" if "Begin" in shown else "Go on")
    wait_for(quiz, "Question ")
    quiz.page.wait_for_timeout(500)


def test_a_quiz_is_failed_reloaded_in_the_middle_and_passed_in_a_new_attempt_by_the_keyboard_alone(
    quiz: Notebook, photograph
) -> None:
    start(quiz)
    asked(quiz, 1, 0)
    assert "chosen" not in text(quiz)
    choose(quiz, "5" if "11 rows" in text(quiz) else "4")
    wait_for(quiz, "That rounds down; torch.chunk rounds up.")
    assert "Read again: lab 02, “Boxes”." in text(quiz)
    photograph(quiz.page, "quiz-not-yet")
    go_on(quiz, "Not yet.")
    asked(quiz, 2, 0)
    choose(quiz, "Rank 0 writes all of it.", "Each rank writes its own quarter.", "Nobody writes it.")
    press(quiz, "Check my answer")
    wait_for(quiz, "Partly right, 1/2 of a point.")
    quiz.page.reload()
    quiz.wait_for_kernel()
    start(quiz)
    asked(quiz, 3, 0)
    write(quiz, "many")
    wait_for(quiz, "Not an answer yet: write a number, as in 10.5 or 10,5.")
    go_to(quiz, "INPUT")
    quiz.page.keyboard.press("Control+A")
    write(quiz, "3.5" if "7 billion" in text(quiz) else "3.25")
    go_on(quiz, "Only the weights.")
    asked(quiz, 4, 0)
    write(quiz, "partial")
    go_on(quiz, "A term of a sum.")
    asked(quiz, 5, 0)
    photograph(quiz.page, "quiz-order")
    press(quiz, "Check my answer")
    go_on(quiz, "comes before")
    asked(quiz, 6, 0)
    photograph(quiz.page, "quiz-match")
    press(quiz, "Check my answer")
    wait_for(quiz, "Not an answer yet: give an answer in every row.")
    match(quiz)
    go_on(quiz, "Right.", "See what you reached")
    wait_for(quiz, "All 6 questions are answered:")
    assert re.search(r"[12]\.\d+ of 6 points", text(quiz)), text(quiz)
    press(quiz, "New attempt")
    asked(quiz, 1, 0)
    choose(quiz, "2" if "11 rows" in text(quiz) else "1")
    photograph(quiz.page, "quiz-right")
    go_on(quiz, "Right.")
    asked(quiz, 2, 1)
    choose(quiz, "Rank 0 writes all of it.", "Each rank writes its own quarter.")
    press(quiz, "Check my answer")
    go_on(quiz, "Right.")
    asked(quiz, 3, 2)
    write(quiz, "10,5 gb" if "7 billion" in text(quiz) else "9.75")
    go_on(quiz, "Right.")
    asked(quiz, 4, 3)
    write(quiz, "replicate()")
    go_on(quiz, "Right.")
    asked(quiz, 5, 4)
    sort(quiz)
    go_on(quiz, "Right.")
    asked(quiz, 6, 5)
    match(quiz)
    go_on(quiz, "Right.", "See what you reached")
    wait_for(quiz, "All 6 questions are answered: 6 of 6 points, 100 %.")
    wait_for(quiz, "Best so far: 6 of 6 points.")
    photograph(quiz.page, "quiz-passed")


def test_it_can_be_read_on_the_dark_theme_and_on_a_narrow_page(quiz: Notebook, photograph) -> None:
    start(quiz)
    choose(quiz, rows(quiz)[0])
    wait_for(quiz, "lab 02, “")
    press(quiz, "Report this question")
    quiz.cell(CELL).locator("textarea:visible").wait_for()
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        quiz.menu("Settings", "Theme", theme)
        quiz.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        quiz.page.wait_for_timeout(500)
        photograph(quiz.page, f"quiz-{theme}")
        assert quiz.page.evaluate(CONTRASTS) == [], theme
    quiz.show_whole(width=700)
    assert "Question 02." in quiz.cell(CELL).locator("textarea").input_value()
    photograph(quiz.page, "quiz-narrow")
    assert quiz.page.evaluate(TOO_WIDE) == []
    quiz.page.set_viewport_size({"width": 1280, "height": 900})


def test_a_restarted_kernel_goes_on_and_what_is_saved_can_be_read_without_one(quiz: Notebook) -> None:
    start(quiz)
    question = re.search(r"Question \d of 6", text(quiz))[0]
    quiz.restart_kernel()
    start(quiz)
    assert question in text(quiz)
    (cell,) = [cell for cell in quiz.saved() if CELL in "".join(cell["source"])]
    texts = ["".join(output["data"]["text/plain"]) for output in cell["outputs"]]
    assert texts[0].startswith("Quiz 02: Shards. ")
    assert "You go on where you stopped." in texts[0]
    assert "run the cell" in texts[1]
