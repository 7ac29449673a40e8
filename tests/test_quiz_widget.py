"""The quiz's widget without a browser: presses that come at once, two notebooks, and a kernel that is gone."""

import subprocess
import sys
from pathlib import Path

from checkouts import check_out
from small_bank import TEXT, put_course

HARNESS = """
import threading
from ckptlab.course import journal, quiz

def below(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from below(child)

def button(shown, label):
    return next(one for one in below(shown.box) if getattr(one, "description", None) == label and one.layout.display != "none")

def at_once(*buttons):
    threads = [threading.Thread(target=one.click) for one in buttons for _ in range(4)]
    [one.start() for one in threads], [one.join() for one in threads]

def texts(shown):
    return " ".join(str(one.value) for one in below(shown.box) if hasattr(one, "value"))

def kinds():
    return [event["kind"] for event in journal.read()]
"""


def run(folder: Path, code: str) -> None:
    if not (folder / "labs").exists():
        put_course(folder, TEXT)
        check_out(folder)
    environment = {"PYTHONPATH": str(folder), "HOME": str(folder / "home"), "CKPTLAB_HOME": str(folder / "journal")}
    done = subprocess.run([sys.executable, "-c", HARNESS + code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_presses_that_come_at_once_are_one_answer(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
shown = quiz("02")
assert kinds() == [], "nothing is kept before anything is pressed"
at_once(button(shown, "Begin"))
assert kinds() == ["quiz-begin"]
at_once(button(shown, "Choose A"), button(shown, "Choose B"), button(shown, "Choose C"))
assert kinds() == ["quiz-begin", "quiz-answer"]
at_once(button(shown, "Next question"))
assert "Question 2 of 7" in texts(shown)
""",
    )


def test_two_notebooks_at_once_ask_the_same_and_the_first_answer_counts(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
shown, other = quiz("02"), quiz("02")
button(shown, "Begin").click(), button(other, "Begin").click()
button(shown, "Choose A").click()
assert "in another notebook" not in texts(shown)
button(other, "Choose B").click()
assert "You have answered this in another notebook or terminal before; that answer counts." in texts(other)
button(other, "Next question").click()
assert "Question 2 of 7" in texts(other)
""",
    )


def test_an_attempt_that_was_reset_meanwhile_ends_and_another_begins(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
from ckptlab.course import reset
shown = quiz("02")
button(shown, "Begin").click()
reset("02")
button(shown, "Choose A").click()
assert "This attempt was reset meanwhile." in texts(shown)
assert kinds() == ["quiz-begin", "reset"], "an answer to nothing was kept"
button(shown, "New attempt").click()
assert "Question 1 of 7" in texts(shown)
""",
    )


def test_after_a_kernel_was_killed_the_quiz_goes_on(tmp_path: Path) -> None:
    begin = """
import os
shown = quiz("02")
button(shown, "Begin").click()
button(shown, "Choose A").click()
os._exit(0)
"""
    go_on = """
shown = quiz("02")
button(shown, "Go on").click()
assert "Question 2 of 7" in texts(shown)
"""
    run(tmp_path, begin)
    run(tmp_path, go_on)


def test_a_language_is_chosen_by_a_button_and_told_in_words(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
from ckptlab.course import language
shown = language()
assert "The language is English." in texts(shown)
assert kinds() == []
button(shown, "Igbo").click()
assert "The language is Igbo." in texts(shown)
assert 'lang="en"' in texts(shown)
assert [event["language"] for event in journal.read()] == ["ig"]
assert "Quiz 02: " in texts(quiz("02"))
""",
    )


def test_texts_of_a_bank_are_shown_as_text(tmp_path: Path) -> None:
    put_course(tmp_path, TEXT.replace("ask: A tensor has", "ask: <img src=x onerror=alert(1)> A tensor has"))
    check_out(tmp_path)
    run(
        tmp_path,
        """
shown = quiz("02")
button(shown, "Begin").click()
assert "&lt;img src=x onerror=alert(1)&gt;" in texts(shown)
assert "<img" not in texts(shown)
""",
    )
