"""What a learner is told in another language: as translated, as a draft beside the English, or in English."""

from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po

from ckptlab.cli.main import run
from ckptlab.course.languages import Message, Told, say, tell
from ckptlab.course.quiz.bank import bank_files, read

STATUS = Message("quiz.status", "Question {number} of {total}, {right} right", {"number": 3, "total": 6, "right": 2})


@pytest.fixture
def locale(tmp_path: Path) -> Path:
    """A folder with the pseudo-language qps, as translators' tools write such a file."""
    catalog = Catalog(locale="en", fuzzy=False)
    catalog.add(STATUS.text, "Qüéstïön {number} öf {total}, {right} rïght", context="quiz.status")
    catalog.add("Right.", "Rïght.", context="quiz.right", flags=["fuzzy"])
    catalog.add("Not yet, then.", "Nöt yét.", context="quiz.not-yet")
    catalog.add("ID {id}", "ID {id}", context="quiz.same", flags=["fuzzy"])
    catalog.add("Best: {points}", "Bést: {pöints}", context="quiz.best")
    catalog.add("Begin", "", context="quiz.begin")
    with (tmp_path / "qps.po").open("wb") as file:
        write_po(file, catalog)
    return tmp_path


def test_a_reviewed_translation_stands_in_the_place_of_the_english(locale: Path) -> None:
    told = tell(STATUS, "qps", locale)
    assert (str(told), told.language, told.is_draft) == ("Qüéstïön 3 öf 6, 2 rïght", "qps", False)


def test_a_draft_stands_beside_the_english(locale: Path) -> None:
    told = tell(Message("quiz.right", "Right."), "qps", locale)
    assert str(told) == "Right. [draft translation: Rïght.]"
    assert told.is_draft


@pytest.mark.parametrize(
    "message",
    [
        Message("quiz.not-yet", "Not yet."),  # its English has changed since
        Message("quiz.best", "Best: {points}"),  # its names differ
        Message("quiz.begin", "Begin"),  # not translated
        Message("quiz.other", "Right."),  # another context
    ],
    ids=lambda message: message.context,
)
def test_what_is_stale_wrong_or_missing_is_told_in_english(locale: Path, message: Message) -> None:
    assert str(tell(message, "qps", locale)) == message.text


@pytest.mark.parametrize("language", ["en", "xx", "../qps", "", "QPS"])
def test_a_language_that_is_not_there_is_english(locale: Path, language: str) -> None:
    assert str(tell(Message("quiz.right", "Right."), language, locale)) == "Right."


def test_a_file_that_has_changed_is_read_again(locale: Path) -> None:
    tell(STATUS, "qps", locale)
    text = (locale / "qps.po").read_text()
    (locale / "qps.po").write_text(text.replace("öf", "ôf"))
    assert "ôf" in str(tell(STATUS, "qps", locale))


def test_a_message_within_a_message_is_told_in_one_language_at_a_time(locale: Path) -> None:
    within = Message("quiz.right", "Right.")
    assert str(tell(Message("quiz.option", "{text} {why}", {"text": within, "why": "So."}), "qps", locale)) == (
        "Right. So. [draft translation: Rïght. So.]"
    )
    told = tell(
        Message(STATUS.context, STATUS.text, {"number": within, "total": Message("a", "six"), "right": 2}), "qps", locale
    )
    assert (told.english, told.translation) == ("Question Right. of six, 2 right", "Qüéstïön Rïght. öf six, 2 rïght")
    assert told.is_draft


def test_a_draft_that_is_the_english_is_not_told_twice(locale: Path) -> None:
    message = Message("quiz.same", "ID {id}", {"id": 5})
    assert tell(message, "ig", locale) == Told(english="ID 5")


def test_braces_of_code_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CKPTLAB_LANGUAGE", raising=False)
    assert say("a", 'write {"a": {b}} and {} and {c}', b=1) == 'write {"a": 1} and {} and {c}'
    assert say("a", "{b}", b="{c}", c=1) == "{c}"


def test_the_command_line_takes_only_languages_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--language", "qps", "quiz", "show"]) == 2
    assert "there is no language 'qps'; there are en, ig, so." in capsys.readouterr().err


def test_every_text_of_every_question_has_a_context_of_its_own() -> None:
    banks = tuple(map(read, bank_files().values()))
    for question in (question for bank in banks for question in bank.questions):
        parts = [option.id for option in question.options]
        assert not {"ask", "because", "answer"} & {*parts}, f"{question.id}: an option's id that is also a part of a question"
