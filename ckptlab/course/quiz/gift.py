"""Questions in Moodle's GIFT format: each variant a question, with the feedback and partial credit that GIFT can say. Pure.

GIFT has no order and runs no exercises: an order becomes a match of places and items, an exercise is left out.
"""

import re
from collections.abc import Iterable, Iterator

from ckptlab.course.languages import fill
from ckptlab.course.quiz.arithmetic import number
from ckptlab.course.quiz.bank import Bank, Question, Values


def export(bank: Bank) -> tuple[str, int]:
    """Return the file's text, and how many questions are in it."""
    entries = [entry for question in bank.questions for entry in _entries(question)]
    head = f"// {bank.title}, version {bank.version} of the bank\n$CATEGORY: ckptlab/{_escape(f'{bank.name} {bank.title}')}\n"
    return "\n\n".join((head, *entries)) + "\n", len(entries)


def _entries(question: Question) -> Iterator[str]:
    if question.type == "exercise":
        return
    for place, values in enumerate(question.variants, start=1):
        variant = f", variant {place}" if len(question.variants) > 1 else ""
        answers = "\n".join(f"\t{line}" for line in _answers(question, values))
        kind = "#" if question.type == "numeric" else ""
        title = f"{question.bank}.{question.id}{variant}"
        yield f"::{_escape(title)}::[markdown]{_text(question.ask, values)} {{{kind}\n{answers}\n}}"


def _answers(question: Question, values: Values) -> Iterable[str]:
    match question.type:
        case "single":
            for option in question.options:
                yield f"{'=' if option.right else '~'}{_text(option.text, values)}#{_text(option.because, values)}"
        case "multiple":
            share = 100 / sum(option.right for option in question.options)
            for option in question.options:
                percent = f"{share if option.right else -share:.5f}".rstrip("0").rstrip(".")
                yield f"~%{percent}%{_text(option.text, values)}#{_text(option.because, values)}"
        case "numeric":
            yield f"={_range(question, question.answer, values)}#{_text(question.because, values)}"
            yield from (f"=%0%{_range(question, near.value, values)}#{_text(near.because, values)}" for near in question.near)
        case "text":
            yield from (f"={_text(text, values)}#{_text(question.because, values)}" for text in question.accept)
            yield from (f"=%0%{_text(near.value, values)}#{_text(near.because, values)}" for near in question.near)
        case "order":
            yield from (f"={place} -> {_text(item, values)}" for place, item in enumerate(question.items, start=1))
        case "match":
            yield from (f"={_text(left, values)} -> {_text(right, values)}" for left, right in question.pairs)
    if question.type in ("numeric", "order", "match"):
        yield f"####{_text(question.because, values)}"


def _range(question: Question, text: str, values: Values) -> str:
    """Write a number with what it may be off by."""
    value = number(fill(text, values))
    return f"{float(value):.12g}:{float(question.reach(value)):.12g}"


def _text(text: str, values: Values) -> str:
    return _escape(fill(text, values).strip())


def _escape(text: str) -> str:
    """Escape what GIFT would obey; a line break would end a question."""
    return re.sub(r"([~=#{}:\\])", r"\\\1", text).replace("\n", "\\n")
