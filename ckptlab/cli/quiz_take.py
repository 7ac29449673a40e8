"""A quiz in the terminal: a question, a line typed, what it is worth and why; Ctrl+C at any time."""

import re

import click

from ckptlab.cli.door import say as say_line
from ckptlab.course.languages import Message, say, tell
from ckptlab.course.quiz import sitting, words
from ckptlab.course.quiz.attempts import Sheet
from ckptlab.course.quiz.card import LETTERS, Card, card_of
from ckptlab.course.quiz.draw import FINAL, Drawn, Paper
from ckptlab.errors import UsageError

HOW = {
    "single": "Your answer, a letter",
    "multiple": "Your answer, letters as in A C",
    "numeric": "Your answer, a number",
    "text": "Your answer",
    "order": "The numbers in the right order, as in 2 1 3",
    "match": "Your answer, as in 1B 2A 3C",
    "exercise": "Enter to run your answer, - to leave it out",
}


class _NoAnswer(Exception):
    """What was typed is no answer, as its message says."""


def take_quiz(paper: Paper) -> None:
    """Ask all questions of an attempt that are still open."""
    _tell(words.title(paper))
    standing = sitting.look(paper)
    for message in words.introduction(paper, standing):
        _tell(message)
    sheet = sitting.begin(paper).open
    try:
        while sheet is not None and sheet.next is not None:
            sheet = _ask(paper, sheet, sheet.next)
    except click.Abort:
        _print("\n" + say("quiz.stopped", "Kept. Go on with: ckptlab quiz take {name}", name=paper.name))
        raise
    except sitting.AttemptGone:
        _tell(words.gone())
        return
    if sheet is not None:
        _tell(words.finished(paper, sheet), "\n")
        if paper.name == FINAL:
            result = sitting.result()
            _tell(words.course(result))
            if result.has_passed:
                _tell(Message("quiz.certificate", "Make your certificate: ckptlab certificate make FOLDER --name NAME"))


def _ask(paper: Paper, sheet: Sheet, index: int) -> Sheet:
    drawn = sheet.drawn[index]
    card = card_of(drawn)
    _tell(words.status(sheet, index), "\n")
    _tell(words.ask(drawn))
    for number, row in enumerate(card.rows()):
        _print(f"  {row.mark or f'{LETTERS[number]}.'} {row.text}")
    for letter, text in card.legend():
        _print(f"     {letter}. {text}")
    while True:
        try:
            how = say(f"quiz.how.{drawn.question.type}", HOW[drawn.question.type])
            given = _read(card, click.prompt(how, default="", show_default=False))
            sheet = sitting.answer(paper, sheet, drawn, given)
        except UnicodeDecodeError:  # half a character
            continue
        except (UsageError, _NoAnswer) as error:
            what = error.args[0] if isinstance(error, _NoAnswer) else Message("quiz.wanted-form", str(error))
            _tell(Message("quiz.no-answer", "Not an answer yet: {what}.", {"what": what}))
            continue
        _explain(sheet, index, drawn, given)
        return sheet


def _explain(sheet: Sheet, index: int, drawn: Drawn, given: object) -> None:
    answer = sheet.answers[index]
    assert answer is not None, "it has just been given"
    _tell(words.outcome(answer.mark))
    if answer.given != given:
        _tell(words.earlier())
    for message in words.feedback(drawn, answer):
        _tell(message, "  ")


def _read(card: Card, typed: str) -> object:
    """Turn a typed line into an answer as the journal has it."""
    drawn, typed = card.drawn, typed.strip()
    match drawn.question.type:
        case "single" | "multiple":
            chosen = [_number(letter, len(drawn.order)) for letter in re.findall(r"\w", typed)]
            ids = [drawn.question.options[drawn.order[number]].id for number in chosen]
            if drawn.question.type == "multiple":
                return ids
            return ids[0] if len(ids) == 1 else ""
        case "order":
            places = [int(number) - 1 for number in re.findall(r"\d{1,3}", typed)]
            return [card.picked[place] if 0 <= place < len(card.picked) else -1 for place in places]
        case "match":
            rights = {
                int(left) - 1: _number(letter, len(drawn.order)) for left, letter in re.findall(r"(\d{1,3})\s*(\w)", typed)
            }
            return [drawn.order[rights[left]] if left in rights else -1 for left in range(len(card.picked))]
        case "exercise":
            return None if typed == "-" else _run(drawn.question.exercise)
    return typed


def _number(letter: str, count: int) -> int:
    number = LETTERS[:count].find(letter.upper())
    if number < 0:
        raise _NoAnswer(Message("quiz.letters", "the letters are {letters}", {"letters": ", ".join(LETTERS[:count])}))
    return number


def _run(id_: str) -> bool:
    if not sitting.exercise_is_right(id_):
        raise _NoAnswer(Message("quiz.not-right", "exercise {id} is not right yet in your journal", {"id": id_}))
    return True


def _tell(message: Message, before: str = "") -> None:
    _print(f"{before}{tell(message)}")


def _print(text: str) -> None:
    for line in text.split("\n"):
        say_line(line)
