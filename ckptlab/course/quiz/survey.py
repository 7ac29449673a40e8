"""All banks at once: what is wrong in them, and how the questions are spread. Pure but for reading."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from ckptlab.course.languages import fill
from ckptlab.course.quiz.bank import Bank, Question, read
from ckptlab.errors import UsageError

MOST_LONGEST = Fraction(40, 100)  # of the single questions, that who takes the longest option may get right
QUESTIONS = range(5, 9)  # a lab
LEAST_DIAGNOSES = 2  # a lab
TYPES = ("single", "multiple", "numeric", "text", "order", "match", "exercise")
LEVELS = ("recall", "explain", "apply", "diagnose")


@dataclass(frozen=True, slots=True)
class Survey:
    """Banks that could be read, and what is wrong in these and the others."""

    banks: tuple[Bank, ...]
    faults: tuple[str, ...]

    @property
    def questions(self) -> list[Question]:
        """Return all questions."""
        return [question for bank in self.banks for question in bank.questions]

    def tables(self) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
        """Yield a heading and its rows, for a person; nothing where no bank could be read."""
        if not self.banks:
            return
        for name, kinds in (("type", TYPES), ("level", LEVELS)):
            rows = [[sum(getattr(one, name) == kind for one in bank.questions) for kind in kinds] for bank in self.banks]
            sums = [sum(column) for column in zip(*rows, strict=True)]
            body = [(bank.name, *row, sum(row)) for bank, row in zip(self.banks, rows, strict=True)]
            yield f"Questions by {name}", [("lab", *kinds, "all"), *body, ("all", *sums, sum(sums))]
        proofs, sources = (sum(bool(getattr(one, name)) for one in self.questions) for name in ("proof", "source"))
        keyed = [("with a proof", _share(proofs, proofs + sources)), ("with a source", _share(sources, proofs + sources))]
        longest = f"{float(longest_is_right(self.questions)):.0%} (at most {float(MOST_LONGEST):.0%})"
        yield "Keys", [*keyed, ("single questions whose longest option is right", longest)]


def survey(files: Iterable[Path]) -> Survey:
    """Read banks, strictly, and look at them together."""
    banks, faults = [], []
    for path in files:
        try:
            banks.append(read(path))
        except UsageError as error:
            faults += str(error).splitlines()
    return Survey(tuple(banks), (*faults, *(fault for bank in banks for fault in _of_bank(bank)), *_of_all(banks)))


def longest_is_right(questions: Iterable[Question]) -> Fraction:
    """Return how often who takes the longest option is right, over all single questions and their variants."""
    chances = [_chance(question) for question in questions if question.type == "single"]
    return sum(chances, Fraction(0)) / len(chances) if chances else Fraction(0)


def _chance(question: Question) -> Fraction:
    """Of equally long options one is taken at random."""
    chances = []
    for values in question.variants:
        lengths = [len(fill(option.text, values)) for option in question.options]
        longest = [option.right for option, length in zip(question.options, lengths, strict=True) if length == max(lengths)]
        chances.append(Fraction(sum(longest), len(longest)))
    return sum(chances, Fraction(0)) / len(chances)


def _of_bank(bank: Bank) -> Iterator[str]:
    if len(bank.questions) not in QUESTIONS:
        yield f"{bank.name}: {len(bank.questions)} questions; a lab has {QUESTIONS.start} to {QUESTIONS.stop - 1}"
    if (found := sum(question.level == "diagnose" for question in bank.questions)) < LEAST_DIAGNOSES:
        yield f"{bank.name}: {found} questions diagnose; at least {LEAST_DIAGNOSES} should"


def _of_all(banks: list[Bank]) -> Iterator[str]:
    questions = [question for bank in banks for question in bank.questions]
    asked = Counter(question.ask for question in questions if question.ask)
    yield from (f"{count} questions ask the same: {ask[:60]}" for ask, count in asked.items() if count > 1)
    if (share := longest_is_right(questions)) > MOST_LONGEST:
        yield f"the longest option is right in {float(share):.0%} of the single questions; at most {float(MOST_LONGEST):.0%}"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "0"
