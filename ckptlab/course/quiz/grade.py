"""What an answer is worth, and what is told about it. Pure: (drawn question, answer) -> mark.

One rule of credit a type; right means full credit:
- single: 1 for the right option.
- multiple: (right ticked - wrong ticked) / number of right ones, never below 0.
- numeric: 1 within the tolerance. A decimal comma is accepted; `1,234` is right when either reading is. The unit may be left
  out, and another unit is no answer; where none is asked for, words behind the number do not matter.
- text: 1 when it is one of those accepted (NFC, capitals and spaces do not matter); missing marks are accepted, and told.
- order: of each two neighbours of the right order, whether the first stands somewhere before the second; right ones / all.
- match: right pairs / pairs.
- exercise: 1 when the newest of the best answers in the journal was right when it ran again.

Answers as they stand in the journal, always in the bank's own order, never as they were shown: single the option's id;
multiple a list of ids; numeric and text what was typed; order a list of numbers of items; match for each left side the number
of a pair whose right side was chosen; exercise true or false. None is "no answer": a question that was left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from unicodedata import category

from ckptlab.course.languages import Message, fill
from ckptlab.course.quiz.arithmetic import number, readings
from ckptlab.course.quiz.bank import Option
from ckptlab.course.quiz.draw import Drawn
from ckptlab.course.quiz.spelling import plain, same, same_but_for_marks
from ckptlab.errors import UsageError

MOST_CHARACTERS = 200  # of what is typed


@dataclass(frozen=True, slots=True)
class Mark:
    """What one answer is worth."""

    credit: Fraction  # 0 to 1
    because: tuple[Message, ...]

    @property
    def is_right(self) -> bool:
        """Whether it has full credit."""
        return self.credit == 1


def grade(drawn: Drawn, given: object) -> Mark:
    """Mark an answer.

    Raises:
        UsageError: it is none that this question can have; the message tells a learner what to give.
    """
    if given is None:
        return Mark(Fraction(0), tuple(_key(drawn)))
    return _GRADERS[drawn.question.type](drawn, given)


def _single(drawn: Drawn, given: object) -> Mark:
    for option in drawn.question.options:
        if option.id == given:
            return Mark(Fraction(option.right), (drawn.message(f"{option.id}.because", option.because),))
    raise UsageError("choose one of the answers")


def _multiple(drawn: Drawn, given: object) -> Mark:
    options = {option.id: option for option in drawn.question.options}
    if not isinstance(given, list) or not all(isinstance(id_, str) and id_ in options for id_ in given) or not given:
        raise UsageError("choose one or more of the answers")
    ticked = set(given)
    num_right = sum(option.right for option in options.values())
    worth = sum(1 if options[id_].right else -1 for id_ in ticked)
    missed = [option for option in options.values() if option.right != (option.id in ticked)]
    told = tuple(_about(drawn, option, option.id in ticked) for option in missed or options.values() if missed or option.right)
    return Mark(Fraction(max(0, worth), num_right), told)


def _about(drawn: Drawn, option: Option, is_ticked: bool) -> Message:
    text = "“{option}” is right. {because}" if is_ticked else "“{option}” is right too. {because}"
    if not option.right:
        text = "“{option}” is not right. {because}"
    values = {"option": drawn.message(option.id, option.text), "because": drawn.message(f"{option.id}.because", option.because)}
    return Message("quiz.option", text, values)


def _numeric(drawn: Drawn, given: object) -> Mark:
    question = drawn.question
    values, unit = readings(_typed(given))
    if unit and question.unit and plain(unit) != plain(fill(question.unit, drawn.values)):
        raise UsageError("leave the unit out, or write the one that is asked for")
    right = number(fill(question.answer, drawn.values))
    if any(question.is_near_enough(value, right) for value in values):
        return Mark(Fraction(1), (drawn.message("because", question.because),))
    for index, near in enumerate(question.near):
        if any(question.is_near_enough(value, number(fill(near.value, drawn.values))) for value in values):
            return Mark(Fraction(0), (drawn.message(f"near.{index}.because", near.because),))
    return Mark(Fraction(0), tuple(_key(drawn)))


def _text(drawn: Drawn, given: object) -> Mark:
    question, typed = drawn.question, _typed(given)
    accepted = [fill(text, drawn.values) for text in question.accept]
    because = drawn.message("because", question.because)
    if any(same(typed, text) for text in accepted):
        return Mark(Fraction(1), (because,))
    for text in accepted:
        if same_but_for_marks(typed, text):
            return Mark(Fraction(1), (Message("quiz.marks", "With its marks it is written {text}.", {"text": text}), because))
    for index, near in enumerate(question.near):
        if same_but_for_marks(typed, fill(near.value, drawn.values)):
            return Mark(Fraction(0), (drawn.message(f"near.{index}.because", near.because),))
    return Mark(Fraction(0), tuple(_key(drawn)))


def _order(drawn: Drawn, given: object) -> Mark:
    question = drawn.question
    places = _numbers(given, len(question.items))
    if len(set(places)) != len(question.items):
        raise UsageError("put every part in its place")
    pairs = [(number, number + 1) for number in range(len(question.items) - 1)]
    wrong = [pair for pair in pairs if places.index(pair[0]) > places.index(pair[1])]
    told = [_before(drawn, *pair) for pair in wrong]
    return Mark(Fraction(len(pairs) - len(wrong), len(pairs)), (*told, drawn.message("because", question.because)))


def _before(drawn: Drawn, first: int, second: int) -> Message:
    one, other = (drawn.message(f"items.{number}", drawn.question.items[number]) for number in (first, second))
    return Message("quiz.before", "“{first}” comes before “{second}”.", {"first": one, "second": other})


def _match(drawn: Drawn, given: object) -> Mark:
    pairs = drawn.question.pairs
    rights = [fill(right, drawn.values) for _, right in pairs]
    chosen = _numbers(given, len(pairs))
    wrong = [number for number, at in enumerate(chosen) if rights[at] != rights[number]]
    told = [_pair(drawn, number) for number in wrong]
    credit = Fraction(len(pairs) - len(wrong), len(pairs))
    return Mark(credit, (*told, drawn.message("because", drawn.question.because)))


def _pair(drawn: Drawn, number: int) -> Message:
    left, right = drawn.question.pairs[number]
    sides = {"left": drawn.message(f"pairs.{number}.left", left), "right": drawn.message(f"pairs.{number}.right", right)}
    return Message("quiz.pair", "Right is {left}: {right}", sides)


def _exercise(drawn: Drawn, given: object) -> Mark:
    if not isinstance(given, bool):
        raise UsageError("the exercise is judged, not typed here")
    told = Message("quiz.exercise", "Your answer of exercise {id} was run again and is right.", {"id": drawn.question.exercise})
    return Mark(Fraction(1), (told,)) if given else Mark(Fraction(0), tuple(_key(drawn)))


_GRADERS: dict[str, Callable[[Drawn, object], Mark]] = {
    "single": _single,
    "multiple": _multiple,
    "numeric": _numeric,
    "text": _text,
    "order": _order,
    "match": _match,
    "exercise": _exercise,
}


def _key(drawn: Drawn) -> Iterator[Message]:
    """Tell what would have been right, to who gave nothing or something that no one foresaw."""
    question = drawn.question
    yield from (_about(drawn, option, is_ticked=True) for option in question.options if option.right)
    if question.answer:
        wanted = " ".join(filter(None, (fill(question.answer, drawn.values), fill(question.unit, drawn.values))))
        yield Message("quiz.wanted", "Right is {answer}.", {"answer": wanted})
    if question.accept:
        yield Message("quiz.wanted", "Right is {answer}.", {"answer": fill(question.accept[0], drawn.values)})
    if question.exercise:
        yield Message("quiz.left-out", "You left exercise {id} out.", {"id": question.exercise})
    if question.because:
        yield drawn.message("because", question.because)


def _typed(given: object) -> str:
    if not isinstance(given, str) or not given.strip() or len(given) > MOST_CHARACTERS:
        raise UsageError("write an answer of at most 200 characters")
    if any(category(char) in ("Cc", "Cs") for char in given):  # an arrow key in a terminal, half a character
        raise UsageError("write an answer of letters, digits and signs alone")
    return given


def _numbers(given: object, count: int) -> Sequence[int]:
    if isinstance(given, list) and len(given) == count and all(type(one) is int and 0 <= one < count for one in given):
        return given
    raise UsageError("give an answer in every row")
