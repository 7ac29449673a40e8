"""What passing the course is, and what a certificate may say: from answers graded again and exercises run again. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import ckptlab
from ckptlab.course.content import lab_of
from ckptlab.course.journal import Event
from ckptlab.course.progress.fold import fold as fold_exercises
from ckptlab.course.quiz.attempts import Sheet, best_of, fold, sheet_of
from ckptlab.course.quiz.draw import Paper

FINAL_SCORE = Fraction(80, 100)  # of the points of the final
EXERCISES_OF = ("03", "04", "06")  # the labs whose exercises all have to be right


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is known of a learner, all of it computed again."""

    has_passed: bool
    score: Fraction | None  # of the best finished attempt at the final, of 1; None without one
    exercises: tuple[str, ...]  # those asked for that are right now
    missing: tuple[str, ...]  # those asked for that are not; a lab without exercises is missing as a whole ("06")
    banks: Mapping[str, str]  # SHA-256 of every bank, by name
    course: str  # version of the course
    evidence: tuple[Mapping[str, object], ...]  # JSON: every answer and exercise behind it


def asked_for(exercises: Iterable[str]) -> list[str]:
    """Return which of these exercises passing asks for."""
    return [id_ for id_ in exercises if lab_of(id_) in EXERCISES_OF]


def passed(events: Iterable[Event], final: Paper, exercises: Iterable[str], ran_again: Mapping[str, str]) -> Result:
    """Say whether a journal passes the course.

    Args:
        events: the journal.
        final: the final quiz, of the banks as they are.
        exercises: the ids of all exercises that there are.
        ran_again: by id, the verdict's state when the journal's answer (`sources`) ran again just now; the caller runs them.
    """
    events = list(events)
    sheets = [sheet_of(final, one) for one in fold(events).get(final.name, []) if one.sha256 == final.sha256]
    return conclude(best_of(sheets), sources(events, asked_for(exercises)), final, exercises, ran_again)


def conclude(
    best: Sheet | None, answers: Mapping[str, str], final: Paper, exercises: Iterable[str], ran_again: Mapping[str, str]
) -> Result:
    """Say the same from a journal's best attempt at the final and its answers to exercises."""
    wanted = asked_for(exercises)
    right = [id_ for id_ in wanted if id_ in answers and ran_again.get(id_, "").startswith("right")]
    without = [lab for lab in EXERCISES_OF if lab not in map(lab_of, wanted)]
    missing = (*(id_ for id_ in wanted if id_ not in right), *without)
    return Result(
        has_passed=best is not None and best.score >= FINAL_SCORE and not missing,
        score=best.score if best else None,
        exercises=tuple(right),
        missing=missing,
        banks=final.sha256,
        course=ckptlab.__version__,
        evidence=(*(_answers(best) if best else ()), *_exercises({id_: answers[id_] for id_ in right}, ran_again)),
    )


def sources(events: Iterable[Event], exercises: Iterable[str]) -> dict[str, str]:
    """Return the journal's best answers to these exercises, by id: what is to be run again."""
    facts = fold_exercises(events)
    return {id_: facts.tried(id_).source for id_ in exercises if facts.tried(id_).state.startswith("right")}


def _answers(sheet: Sheet) -> Iterable[dict[str, object]]:
    for drawn, answer in zip(sheet.drawn, sheet.answers, strict=True):
        if answer:
            bank, question = drawn.key
            credit = str(answer.mark.credit)  # "2/3": JSON has no fractions
            yield {"bank": bank, "question": question, "variant": drawn.variant, "given": answer.given, "credit": credit}


def _exercises(answers: Mapping[str, str], ran_again: Mapping[str, str]) -> Iterable[dict[str, object]]:
    for id_, source in answers.items():
        digest = hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()
        yield {"exercise": id_, "state": ran_again[id_], "source_sha256": digest}
