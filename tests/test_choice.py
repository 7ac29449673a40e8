"""Which language it is: said from outside, the learner's choice, or English; and how a choice travels."""

import os
from pathlib import Path

import pytest

from ckptlab.cli.main import run
from ckptlab.course import journal, progress
from ckptlab.course.choice import choose, take_choice
from ckptlab.course.languages import OWN, VARIABLE, current
from ckptlab.errors import UsageError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path / "home"))


def new_process(**said: str) -> str:
    """Begin as a kernel does that is started with these variables; return the language."""
    for name in (VARIABLE, OWN):
        os.environ.pop(name, None)
    os.environ.update(said)
    take_choice()
    return current()


def test_a_choice_holds_from_the_next_kernel_on_unless_another_language_is_said_from_outside() -> None:
    assert new_process() == "en"
    choose("ig")
    assert current() == "ig"
    assert new_process() == "ig"
    journal.append("language", language="so")  # in another notebook
    take_choice()
    assert current() == "so"
    assert new_process(CKPTLAB_LANGUAGE="ig") == "ig"
    choose("en")
    take_choice()
    assert current() == "en"
    assert new_process(CKPTLAB_LANGUAGE="") == "en"


@pytest.mark.parametrize("language", ["xx", "../qps", "IG", "", None, 1, ["ig"], {"ig": 1}])
def test_what_is_no_language_chooses_nothing(language: object) -> None:
    choose("ig")
    journal.append("language", language=language)
    with journal.journal_file().open("ab") as file:
        file.write(b'{"kind": "language"\n\xff\n')
    content = journal.journal_file().read_bytes()
    assert new_process() == "ig"
    assert journal.journal_file().read_bytes() == content
    with pytest.raises(UsageError, match="there are en, ig, so"):
        choose(language)  # type: ignore[arg-type]  # what a learner may write
    assert journal.journal_file().read_bytes() == content


def test_a_saved_journal_brings_the_choice_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose("so")
    progress.save(tmp_path / "saved.jsonl")
    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path / "another session"))
    assert new_process() == "en"
    progress.load(tmp_path / "saved.jsonl")
    assert current() == "so"
    assert new_process() == "so"


def test_commands_of_the_course_take_the_choice_and_others_do_not_look(tmp_path: Path) -> None:
    choose("ig")
    for arguments, language in (
        (["progress"], "ig"),
        (["quiz", "show"], "ig"),
        (["--language", "so", "progress"], "so"),
        (["ls", str(tmp_path)], "en"),
    ):
        for name in (VARIABLE, OWN):
            os.environ.pop(name, None)
        run(arguments)
        assert current() == language, arguments
