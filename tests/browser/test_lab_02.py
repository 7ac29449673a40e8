"""Lab 02 in depth: answers, hints, the widget, the dark theme, the keyboard alone, a reload, a restarted kernel."""

import re

import pytest
from notebook_page import AREA, CONTRAST, IMAGE, PAINTED, TOO_WIDE, Notebook, outputs_of

from ckptlab.course.content import exercise_file

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
NAME = "02_shards.ipynb"
PICKER = "placement_picker("
EXERCISE = "%%exercise 2.1"


def answer(function: str) -> str:
    """Return the cell of exercise 2.1 with the body of a function of the exercise's file, as a learner might write it."""
    source = exercise_file("2.1").read_text()
    body = re.search(rf"^def {function}\(.*?(?=^\S|\Z)", source, re.MULTILINE | re.DOTALL)
    assert body is not None
    return f"{EXERCISE}\n" + body[0].replace(f"def {function}(", "def rows_of_rank(").rstrip() + "\n"


@pytest.fixture(scope="module")
def lab(course, page) -> Notebook:
    """Lab 02, run once from top to bottom."""
    notebook = Notebook(page, *course, NAME)
    notebook.run_all()
    return notebook


def test_a_wrong_answer_is_diagnosed_a_hint_helps_and_the_right_one_counts(lab: Notebook, photograph) -> None:
    cell = lab.cell(EXERCISE)
    lab.write(cell, answer("wrong_rest_to_the_last"))
    told = lab.run(cell)
    assert told.startswith("2.1: not yet. ")
    assert "do not go to the last rank" in told
    photograph(lab.page, "02-wrong")
    below = lab.add_below(cell, 'hint("2.1")')
    assert "hint 1 of 3" in lab.run(below)
    lab.write(cell, answer("solution"))
    told = lab.run(cell)
    assert told.startswith("2.1")
    assert "right" in told
    told = lab.run(lab.add_below(below, "progress()  # now"))
    photograph(lab.page, "02-progress")
    assert re.search(r"02 shards\s+1\b", told)


def test_a_moved_widget_redraws_the_picture_and_says_it_in_words(lab: Notebook, photograph) -> None:
    output = lab.cell(PICKER).locator(AREA)
    picture, words = output.locator(".js-plotly-plot"), output.inner_text()
    drawn = picture.inner_text()
    output.get_by_role("button", name="Shard(0)").first.click()
    lab.wait_for_change(output, words)
    assert picture.inner_text() != drawn
    assert picture.evaluate(PAINTED)
    output.get_by_label("Rows").fill("5")
    lab.page.keyboard.press("Tab")
    output.get_by_text("5 x 6 on").first.wait_for()
    output.scroll_into_view_if_needed()
    photograph(lab.page, "02-moved")


def test_figures_can_be_read_on_the_dark_theme_and_on_a_narrow_page(lab: Notebook, photograph) -> None:
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        lab.menu("Settings", "Theme", theme)
        lab.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        lab.show_whole()
        photograph(lab.page, f"02-{theme}")
        contrasts = lab.page.evaluate(CONTRAST)
        assert contrasts
        assert min(contrasts) >= 4.5, theme
    lab.show_whole(width=700)  # the outputs are about 330 wide
    photograph(lab.page, "02-narrow")
    assert lab.page.evaluate(TOO_WIDE) == []


def test_a_reload_keeps_what_was_written_and_shown(lab: Notebook, photograph) -> None:
    pictures = outputs_of(lab.saved(), "application/vnd.plotly.v1+json")  # those of widgets are gone; their words stay
    written = lab.cell(EXERCISE).locator(".cm-content").inner_text()
    lab.page.reload()
    lab.wait_for_kernel()
    lab.show_whole()  # JupyterLab draws what comes into sight
    figures = lab.page.locator(".jp-RenderedPlotly")  # at first as images, which plotly has left in the file
    assert figures.count() >= pictures
    assert all(figure.evaluate(PAINTED) or figure.evaluate(IMAGE) for figure in figures.all())
    assert lab.cell(EXERCISE).locator(".cm-content").inner_text() == written
    assert "rows 0-" in lab.cell(PICKER).locator(AREA).inner_text()
    photograph(lab.page, "02-reloaded")


def test_the_keyboard_alone_is_enough(lab: Notebook) -> None:
    keyboard = lab.page.keyboard
    lab.page.set_viewport_size({"width": 1280, "height": 900})
    lab.page.reload()
    lab.wait_for_kernel()  # the notebook has the focus now
    lab.go_to(EXERCISE)
    keyboard.press("Enter")
    keyboard.press("Control+A")
    keyboard.insert_text(answer("wrong_spread_like_numpy"))
    cell = lab.cell(EXERCISE)
    before = cell.locator(".jp-InputPrompt").inner_text()
    keyboard.press("Control+Enter")
    assert "numpy.array_split" in lab.answer(cell, before)
    lab.go_to(PICKER)
    before = lab.cell(PICKER).locator(".jp-InputPrompt").inner_text()
    keyboard.press("Control+Enter")
    words = lab.answer(lab.cell(PICKER), before)
    output = lab.cell(PICKER).locator(AREA)
    for _ in range(30):
        keyboard.press("Tab")
        if lab.page.evaluate("document.activeElement.innerText === 'Shard(1)'"):
            break
    keyboard.press("Space")
    lab.wait_for_change(output, words)


def test_a_restarted_kernel_knows_the_magics_and_the_answers(lab: Notebook) -> None:
    lab.restart_kernel()
    cell = lab.cell(EXERCISE)
    lab.write(cell, answer("solution"))
    assert "right" in lab.run(cell)
