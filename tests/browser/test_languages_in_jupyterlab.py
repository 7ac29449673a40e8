"""A learner in Igbo or Somali: from the notebook that a course page opens, over its link to a lab, to that lab's quiz."""

import os
import re
from pathlib import Path

import pytest
from notebook_page import AREA, MILLISECONDS, Notebook

from ckptlab.course import journal
from ckptlab.course.languages import ENGLISH, LANGUAGES, Message, tell
from ckptlab.course.quiz import sitting, words
from ckptlab.course.quiz.card import LETTERS
from ckptlab.course.quiz.draw import Drawn
from ckptlab.course.quiz.grade import grade

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
CELL = 'quiz("00")'
KERNEL_READY = """async (name) => (await (await fetch('/api/sessions')).json())
    .some(({ path, kernel }) => path.endsWith(name) && kernel.connections && kernel.execution_state === 'idle')"""
SHOWN = """(area, code) => [...area.querySelectorAll(`[lang="${code}"]`)].filter((e) => e.checkVisibility())
    .map((e) => [e.innerText.replace(/\\s+/g, ' ').trim(), e.previousElementSibling?.innerText === 'Draft translation'])"""


class Quiz:
    """The quiz of lab 00 as it stands on the page; what is asked and what is right comes from the journal and the bank."""

    def __init__(self, notebook: Notebook, code: str) -> None:
        self.code, self.num_drafts, self.paper = code, 0, sitting.open_paper("00")
        self.area = notebook.cell(CELL).locator(AREA)

    def press(self, label: str) -> None:
        self.area.get_by_role("button", name=re.compile(rf"^{label}\b")).first.click()

    def take(self, *, right: bool) -> None:
        """Answer all questions of an attempt, all of them right or all wrong."""
        self.area.get_by_text("Question 1 of").wait_for()
        sheet = sitting.look(self.paper).open
        assert sheet is not None
        for number, drawn in enumerate(sheet.drawn, start=1):
            self.area.get_by_text(f"Question {number} of {len(sheet.drawn)}").wait_for()
            self.read(words.ask(drawn))
            self.answer(drawn, right=right)
            self.press("Next question" if number < len(sheet.drawn) else "See what you reached")
        self.area.get_by_text(f"All {len(sheet.drawn)} questions are answered").wait_for()

    def answer(self, drawn: Drawn, *, right: bool) -> None:
        ids = [option.id for option in drawn.question.options if option.right is right]
        ids = ids if right else ids[:1]
        for place, number in enumerate(drawn.order):
            if drawn.question.options[number].id in ids:
                self.press(f"Choose {LETTERS[place]}")
        if drawn.question.type == "multiple":
            self.press("Check my answer")
        mark = grade(drawn, ids if drawn.question.type == "multiple" else ids[0])
        self.area.get_by_text(words.outcome(mark).text, exact=True).first.wait_for()
        for message in (words.outcome(mark), *mark.because):
            self.read(message)

    def read(self, message: Message) -> None:
        """Find a text in the learner's language, marked as such, and as a draft if it is one."""
        told = tell(message, self.code)
        if told.translation is not None:
            text = " ".join(re.sub(r"```\w*\n|`", "", told.translation).split())
            assert [text, told.is_draft] in self.area.evaluate(SHOWN, self.code)
            self.num_drafts += told.is_draft


@pytest.mark.parametrize("code", [code for code in LANGUAGES if code != ENGLISH])
def test_a_quiz_is_failed_and_then_passed_in_the_language_of_the_page_that_the_learner_came_from(
    course, page, code: str, photograph, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: Path = course[0]
    monkeypatch.setenv("CKPTLAB_HOME", os.fspath(folder / "home/.local/share/ckptlab"))
    notebook = Notebook(page, *course, f"start.{code}.ipynb")
    notebook.run_all()
    assert {code, ENGLISH} <= set(page.locator(".jp-RenderedMarkdown [lang]").evaluate_all("all => all.map((e) => e.lang)"))
    page.get_by_role("link", name="00 Start").click()
    notebook.cell("from tempfile").wait_for()
    page.wait_for_function(KERNEL_READY, arg="00_start.ipynb", timeout=MILLISECONDS)
    notebook.wait_for_kernel()
    notebook.run(notebook.cell("from tempfile"))
    notebook.run(notebook.cell(CELL))
    quiz = Quiz(notebook, code)
    before = sitting.look(quiz.paper).finished
    quiz.press("Begin")
    quiz.take(right=False)
    quiz.press("New attempt")
    quiz.take(right=True)
    photograph(page, f"quiz-{code}")
    failed, passed = sitting.look(quiz.paper).finished[len(before) :]
    assert (failed.score, passed.score) == (0, 1)
    assert [event["language"] for event in journal.read() if event["kind"] == "language"][-1] == code
    assert quiz.num_drafts > 10
    notebook.menu("Kernel", "Shut Down All Kernels…")
    page.get_by_role("button", name="Shut Down All").click()
