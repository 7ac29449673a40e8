"""A question as rows of texts with keys to press, and what has been pressed so far. Pure; the widget shows it.

Keys are short ("Choose A", "2 up", "1B"), for the text beside them wraps and a key's does not. What a key does is said in full
to who does not see what stands beside it.
"""

from dataclasses import dataclass, replace

from ckptlab.course.languages import Message, Told, label, tell
from ckptlab.course.quiz.draw import Drawn

LETTERS = "ABCDEFGHIJKL"


@dataclass(frozen=True, slots=True)
class Key:
    """A button."""

    label: str
    does: str
    is_chosen: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A text and the keys beside it."""

    keys: tuple[Key, ...]
    text: Told
    mark: str = ""  # stands before the text


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One question on the way to its answer.

    `picked` has, in the bank's numbers: for multiple the chosen options, for order the items as they stand, for match the right
    side that was chosen for every left side, or -1.
    """

    drawn: Drawn
    picked: tuple[int, ...]

    @property
    def has_field(self) -> bool:
        """Whether the answer is typed."""
        return self.drawn.question.type in ("numeric", "text")

    @property
    def answers_at_once(self) -> bool:
        """Whether a key is an answer already."""
        return self.drawn.question.type == "single"

    def given(self) -> object:
        """Return the answer as the journal has it; it may not be complete yet, which `grade` tells."""
        options = self.drawn.question.options
        chosen = [options[number].id for number in self.picked] if options else list(self.picked)
        return (chosen or [None])[0] if self.answers_at_once else chosen

    def rows(self) -> tuple[Row, ...]:
        """Return what is shown."""
        match self.drawn.question.type:
            case "single" | "multiple":
                return tuple(self._option(number) for number in self.drawn.order)
            case "order":
                return tuple(self._item(place, number) for place, number in enumerate(self.picked))
            case "match":
                return tuple(self._left(number) for number in range(len(self.picked)))
        return ()

    def legend(self) -> tuple[tuple[str, Told], ...]:
        """Return the right sides of a match with their letters, as they are shown."""
        pairs = self.drawn.question.pairs
        told = [tell(self.drawn.message(f"pairs.{number}.right", pairs[number][1])) for number in self.drawn.order if pairs]
        return tuple(zip(LETTERS, told, strict=False))

    def press(self, row: int, key: int) -> "Card":
        """Return the card after a key was pressed."""
        picked = list(self.picked)
        match self.drawn.question.type:
            case "single":
                picked = [self.drawn.order[row]]
            case "multiple":
                number = self.drawn.order[row]
                picked = sorted({*picked} ^ {number})
            case "order" if 0 <= (other := row + (-1, 1)[key]) < len(picked):
                picked[row], picked[other] = picked[other], picked[row]
            case "match":
                picked[row] = self.drawn.order[key]
        return replace(self, picked=tuple(picked))

    def _option(self, number: int) -> Row:
        option = self.drawn.question.options[number]
        text = tell(self.drawn.message(option.id, option.text))
        is_chosen = number in self.picked
        key = _label(LETTERS[self.drawn.order.index(number)], is_chosen)
        return Row((Key(key, f"{key}: {text}", is_chosen),), text)

    def _item(self, place: int, number: int) -> Row:
        text = tell(self.drawn.message(f"items.{number}", self.drawn.question.items[number]))
        up = label(Message("quiz.key.up", "{place} up", {"place": place + 1}))
        down = label(Message("quiz.key.down", "{place} down", {"place": place + 1}))
        return Row((Key(up, f"{up}: {text}"), Key(down, f"{down}: {text}")), text, f"{place + 1}.")

    def _left(self, number: int) -> Row:
        text = tell(self.drawn.message(f"pairs.{number}.left", self.drawn.question.pairs[number][0]))
        keys = []
        for right, (letter, told) in zip(self.drawn.order, self.legend(), strict=True):
            is_chosen = self.picked[number] == right
            pair = f"{number + 1}{letter}"
            key = _label(pair, is_chosen) if is_chosen else pair
            keys.append(Key(key, f"{text}: {letter}, {told}", is_chosen))
        return Row(tuple(keys), text, f"{number + 1}.")


def _label(letter: str, is_chosen: bool) -> str:
    if is_chosen:
        return label(Message("quiz.key.chosen", "{letter} chosen", {"letter": letter}))
    return label(Message("quiz.key.choose", "Choose {letter}", {"letter": letter}))


def card_of(drawn: Drawn) -> Card:
    """Return a question with nothing chosen."""
    start = {"order": drawn.order, "match": (-1,) * len(drawn.question.pairs)}
    return Card(drawn=drawn, picked=start.get(drawn.question.type, ()))
