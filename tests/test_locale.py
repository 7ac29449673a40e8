"""The translations: what translators may not change, what is shown of them, and that all that is said can be translated."""

import gettext
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from babel import Locale
from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import write_po
from checkouts import PACKAGE
from messages import read, reviewed, update, write
from said import Entry, entries

from ckptlab.course.content import LABS, QUIZZES, labs
from ckptlab.course.languages import ENGLISH, LANGUAGES, fill, tell
from ckptlab.course.languages import Message as Said
from ckptlab.course.quiz import words
from ckptlab.course.quiz.arithmetic import number as number_of
from ckptlab.course.quiz.bank import bank_files
from ckptlab.course.quiz.bank import read as read_bank
from ckptlab.course.quiz.draw import Drawn
from ckptlab.course.quiz.grade import grade
from ckptlab.course.quiz.headings import headings
from ckptlab.course.quiz.sitting import open_paper

TRANSLATED = [language for language in LANGUAGES if language != ENGLISH]
CODE = re.compile(r"```.*?```|`[^`]+`", re.DOTALL)
COMMANDS = r'ckptlab certificate verify(?: --trust FILE)?|ckptlab quiz take|hint\("\{id\}"\)|--trust'
KEPT = re.compile(rf"{CODE.pattern}|{COMMANDS}|\{{\w+\}}", re.DOTALL)
WIDE = {code: code + 0xFEE0 for code in (*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1))}


@pytest.fixture(scope="module")
def found() -> list[Entry]:
    return entries()


def translated(language: str) -> list[Message]:
    return [one for one in read(language) if one.id and one.string]


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_translation_keeps_names_code_commands_and_numbers(language: str) -> None:
    for one in translated(language):
        assert set(KEPT.findall(one.string)) == set(KEPT.findall(one.id)), one.context
        assert Counter(CODE.findall(one.string)) == Counter(CODE.findall(one.id)), one.context
        numbers = [set(re.findall(r"\d[\d.,]*\d|\d", KEPT.sub("", text))) for text in (one.id, one.string)]
        assert numbers[0] <= numbers[1], f"{one.context}: {numbers[0] - numbers[1]}"


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_translation_is_composed_and_begins_and_ends_as_the_english(language: str) -> None:
    for one in translated(language):
        assert unicodedata.is_normalized("NFC", one.string), one.context
        around = [(text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]) for text in (one.id, one.string)]
        assert around[0] == around[1], one.context
        assert one.id.count("\n") == one.string.count("\n"), one.context


@pytest.mark.parametrize("language", TRANSLATED)
def test_the_plural_rule_is_that_of_the_language(language: str) -> None:
    catalog, rule = read(language), Locale(language).plural_form
    choose = gettext.c2py(catalog.plural_expr)
    assert catalog.num_plurals == len({*rule.tags, "other"})
    pairs = {(rule(number), choose(number)) for number in range(1000)}
    assert len(pairs) == len({tag for tag, _ in pairs}) == catalog.num_plurals, pairs


def test_a_translation_whose_english_has_changed_waits_unseen_and_comes_back_as_a_draft(tmp_path: Path) -> None:
    old, new = Entry("quiz.right", "Right.", "a.py"), Entry("quiz.right", "Right!", "a.py")
    other = Entry("quiz.begin", "Begin", "a.py")
    catalog = Catalog(locale="ig", fuzzy=False)
    catalog.add(old.text, "O ziri ezi.", context=old.context)
    catalog.add(other.text, "Malite", context=other.context, flags=["fuzzy"])
    write("ig", update(catalog, [old, other]), tmp_path)
    assert reviewed(read("ig", tmp_path), [old, other]) == Fraction(1, 2)
    write("ig", update(read("ig", tmp_path), [new, other]), tmp_path)
    told = [tell(Said(one.context, one.text), "ig", tmp_path) for one in (old, new)]
    assert [str(one) for one in told] == ["Right.", "Right!"]
    write("ig", update(read("ig", tmp_path), [old, other]), tmp_path)
    assert tell(Said(old.context, old.text), "ig", tmp_path).is_draft
    assert reviewed(read("ig", tmp_path), [old, other]) == 0


def test_files_that_are_up_to_date_stay_as_they_are(tmp_path: Path, found: list[Entry]) -> None:
    for language in TRANSLATED:
        written = []
        for _ in range(2):
            write(language, update(read(language, tmp_path) if written else read(language), found), tmp_path)
            written.append((tmp_path / f"{language}.po").read_bytes())
        assert written[0] == written[1]


# A pseudo-language of wide letters: what is shown in plain ones did not come through `tell`, or was not collected.


def wide(text: str) -> str:
    """Write all words of a text in wide letters, but for its code and its {names}."""
    parts = re.split(f"({KEPT.pattern})", text, flags=re.DOTALL)
    return "".join(part if number % 2 else part.translate(WIDE) for number, part in enumerate(parts))


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory, found: list[Entry]) -> Path:
    """The course as it is, in a folder, with a translation of everything."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(PACKAGE, folder / "ckptlab", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "labs").symlink_to(LABS)
    (folder / "quizzes").symlink_to(QUIZZES)
    catalog = Catalog(fuzzy=False)
    for entry in found:
        catalog.add(entry.text, wide(entry.text), context=entry.context)
    with (folder / "ckptlab/course/locale/qps.po").open("wb") as file:
        write_po(file, catalog)
    return folder


def run(folder: Path, code: str, typed: str = "") -> str:
    """Run code there, for a learner of that language; return what it prints."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CKPTLAB_HOME", "XDG_DATA_HOME")}
    own = {"PYTHONPATH": str(folder), "HOME": str(folder), "CKPTLAB_HOME": str(folder / "journal"), "CKPTLAB_LANGUAGE": "qps"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=kept | own, input=typed, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def english() -> list[str]:
    """What stays in English, long ones first: headings of the labs, units, and what stands in the place of {names}."""
    questions = [one for file in bank_files().values() for one in read_bank(file).questions]
    values = {str(value) for one in questions for variant in one.variants for value in variant.values()}
    there = {text for path in labs() for text in headings(path.stem[:2]).values()}
    known = values | there | {one.unit for one in questions}
    return sorted((text for text in known if re.search("[A-Za-z]", text)), key=len, reverse=True)


def plain_words(shown: str) -> set[str]:
    """Return what stands in plain letters and is no code, and nothing that stays in English."""
    shown = KEPT.sub("", shown)
    for text in english():
        shown = shown.replace(text, "")
    return set(re.findall(r"[A-Za-z]{2,}.*", shown))


def answers(drawn: Drawn) -> list[object]:
    """Return answers that bring up all that can be told about a question."""
    question = drawn.question
    ids, rows = [option.id for option in question.options], len(question.items or question.pairs)
    match question.type:
        case "single":
            return ids
        case "multiple":
            return [ids, *([id_] for id_ in ids)]
        case "order" | "match":
            return [[*range(rows)], [*reversed(range(rows))]]
        case "exercise":
            return [True, False, None]
    texts = [
        fill(text, drawn.values) for text in (question.answer or question.accept[0], *(one.value for one in question.near))
    ]
    return [None, *((str(float(number_of(text))) for text in texts) if question.type == "numeric" else texts)]


@pytest.mark.parametrize("name", list(bank_files()))
def test_all_that_a_bank_can_say_is_collected(course: Path, name: str) -> None:
    for drawn in open_paper(name).draw("seed", 1):
        question = drawn.question
        rows = [(f"items.{number}", text) for number, text in enumerate(question.items)]
        for number, sides in enumerate(question.pairs):
            rows += zip((f"pairs.{number}.left", f"pairs.{number}.right"), sides, strict=True)
        rows += [(option.id, option.text) for option in question.options]
        messages = [words.ask(drawn), *(drawn.message(*row) for row in rows)]
        messages += [message for given in answers(drawn) for message in grade(drawn, given).because]
        shown = "\n".join(str(tell(message, "qps", course / "ckptlab/course/locale")) for message in messages)
        assert plain_words(shown) == set(), drawn.key


EXERCISES = """
from ckptlab.course.content import exercise_file
from ckptlab.course.exercise import read, run_answer
from ckptlab.course.progress.advice import hint

if __name__ == "__main__":
    exercise = read(exercise_file("2.1"))
    bodies = ("raise ValueError(1)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    stubs = [exercise.stub.replace("raise NotImplementedError", body) for body in bodies]
    for source in (exercise.stub, *list(exercise.sources.values())[:2], *stubs):
        print(run_answer(exercise, source).text)
    for _ in range(4):
        hint("2.1")
"""
# what Python and the ranks say in their own words, and the name of a case
OWN_WORDS = r"^Traceback.*\n( .*\n)+.*|ValueError: 1|rank \d was killed by SIGKILL|\d+ rows over \d+ ranks|hint\(\"2\.1\"\)"


WIDGET = """
import html, re
from ckptlab.course import quiz

def visible(widget):
    if widget.layout.display != "none":
        yield widget
        for child in getattr(widget, "children", ()):
            yield from visible(child)

def tell(one):
    for name in ("value", "description", "tooltip"):
        text = re.sub("<(pre|code)[^<]*</(pre|code)>|<[^>]*>", "\\n", str(getattr(one, name, "") or ""))
        print(html.unescape(text))

shown = quiz("{name}")
print(shown.summary)
for _ in range(60):  # presses all that can be pressed; a report is in English, for its authors
    for one in list(visible(shown.box)):
        tell(one)
        if hasattr(one, "continuous_update"):
            one.value = "1"
        if hasattr(one, "click") and one.layout.display != "none" and one.description != "{report}":
            one.click()
"""


@pytest.mark.parametrize("name", ["02", "03"])
def test_all_that_the_widget_says_is_collected(course: Path, name: str) -> None:
    shown = run(course, WIDGET.replace("{name}", name).replace("{report}", wide("Report this question")))
    assert wide("New attempt") in shown
    assert plain_words(shown) == set()


def test_all_that_is_said_of_exercises_is_collected(course: Path) -> None:
    shown = run(course, EXERCISES)
    assert len(shown.splitlines()) > 10
    shown = re.sub(OWN_WORDS, "", shown, flags=re.MULTILINE)
    assert plain_words(shown) == set()


def test_all_that_tables_say_is_collected(course: Path) -> None:
    shown = run(course, "from ckptlab.cli.main import run; run(['progress']); run(['quiz', 'show'])")
    for name in (*(path.stem.replace("_", " ") for path in labs()), "final"):
        shown = shown.replace(name, "")
    assert wide("over budget") in shown
    assert wide("attempts") in shown
    assert plain_words(shown) == set()


def test_all_that_the_terminal_says_in_a_quiz_is_collected(course: Path) -> None:
    lines = ["?", "A", "1A 2A 3A 4A 5A", "1", "-", *(" ".join(map(str, range(1, last))) for last in range(4, 9))]
    shown = run(course, "from ckptlab.cli.main import run; run(['quiz', 'take', 'final'])", "\n".join(lines * 30))
    assert plain_words(shown) == set()
