"""Which questions, in which variant and order: a pure function of banks, seed and number of the attempt.

Everything is ordered by a digest of what is drawn for, not by a random generator: any program, in any language and version,
draws the same. The variant goes on by one from attempt to attempt: where a question has several, the next one comes.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ckptlab.course.languages import Message, fill
from ckptlab.course.quiz.bank import Bank, Question, Values

FINAL = "final"
FINAL_QUESTIONS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A question as it is shown in one attempt."""

    question: Question
    variant: int  # which of the variants
    order: tuple[int, ...]  # how options, items or right sides are shown, as numbers in the bank

    @property
    def key(self) -> tuple[str, str]:
        """Return bank and id."""
        return self.question.bank, self.question.id

    @property
    def values(self) -> Values:
        """Return what stands in the place of {names}."""
        return self.question.variants[self.variant]

    def message(self, part: str, text: str) -> Message:
        """Return one of the question's texts, to say."""
        return self.question.message(part, text, self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A quiz that can be taken: one bank, or the final over all banks."""

    name: str  # "02" or "final"
    title: str
    banks: tuple[Bank, ...]

    @property
    def sha256(self) -> dict[str, str]:
        """Return the digests of the banks by name."""
        return {bank.name: bank.sha256 for bank in self.banks}

    @property
    def num_questions(self) -> int:
        """Return how many questions an attempt has."""
        return len(self.draw("", 1))

    def draw(self, seed: str, number: int) -> tuple[Drawn, ...]:
        """Draw the questions of an attempt, in the order of the labs."""
        everything = [question for bank in self.banks for question in bank.questions]
        chosen = _choose(everything, f"{seed}/{number}") if self.name == FINAL else everything
        return tuple(_draw(question, seed, number) for question in chosen)


def _choose(questions: Sequence[Question], seed: str) -> list[Question]:
    """Take one after another of the lab, then of the level, that has come least.

    Exercises are left out: passing the course asks for them by themselves.
    """
    left = sorted((one for one in questions if one.type != "exercise"), key=lambda one: _digest(seed, one.bank, one.id))
    taken: list[Question] = []
    while left and len(taken) < FINAL_QUESTIONS:
        labs, levels = Counter(one.bank for one in taken), Counter(one.level for one in taken)
        best = min(left, key=lambda one: (labs[one.bank], levels[one.level]))  # of equal ones the first
        left.remove(best)
        taken.append(best)
    return sorted(taken, key=questions.index)


def _draw(question: Question, seed: str, number: int) -> Drawn:
    first = int(_digest(seed, question.bank, question.id)[:8], 16)
    variant = (first + number) % len(question.variants)
    shown = _shown(question, variant)
    order = sorted(shown, key=lambda index: _digest(f"{seed}/{number}", question.bank, question.id, str(index)))
    if question.type == "order" and order == shown:
        order.reverse()  # what is to be put in order is not in order
    return Drawn(question=question, variant=variant, order=tuple(order))


def _shown(question: Question, variant: int) -> list[int]:
    """Return the numbers of options, items or right sides; of equal right sides the first."""
    rights = [fill(right, question.variants[variant]) for _, right in question.pairs]
    return [*range(len(question.options) or len(question.items)), *sorted({rights.index(right) for right in rights})]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
