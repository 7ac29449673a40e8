"""The claim of somebody who passed the course, from what `quiz.passing` computed again."""

import hashlib
from collections.abc import Mapping

from ckptlab.course.certificate.claim import Bank, Claim, Recomputed
from ckptlab.course.quiz.passing import EXERCISES_OF, FINAL_SCORE, Result
from ckptlab.errors import UsageError
from ckptlab.format.strict_json import dump_sorted

COURSE = "Checkpoint sharding and resumable training"
*_FIRST, _LAST = EXERCISES_OF
CRITERIA = (
    f"At least {int(FINAL_SCORE * 100)} % in the final quiz, and every exercise of labs {', '.join(_FIRST)} and {_LAST} right."
)


def claim_of(result: Result, name: str) -> Claim:
    """Return what a certificate may say; `name` is as typed, or "". Answers and sources go into it by their SHA-256 only.

    Raises:
        UsageError: the course is not passed, or the name cannot be shown in one line.
    """
    if not result.has_passed or result.score is None:
        raise UsageError(f"the course is not passed; exercises that are not right yet: {', '.join(result.missing) or 'none'}")
    return Claim(
        name=name,
        course=COURSE,
        version=result.course,
        criteria=CRITERIA,
        percent=int(result.score * 100),
        banks=tuple(Bank(bank=bank, sha256=sha256) for bank, sha256 in sorted(result.banks.items())),
        recomputed=tuple(map(_recomputed, result.evidence)),
    )


def _recomputed(item: Mapping[str, object]) -> Recomputed:
    if "exercise" in item:
        return Recomputed(kind="exercise", id=str(item["exercise"]), sha256=str(item["source_sha256"]), credit="1")
    id_ = f"{item['bank']}.{item['question']}.{item['variant']}"
    sha256 = hashlib.sha256(dump_sorted(item["given"])).hexdigest()
    return Recomputed(kind="answer", id=id_, sha256=sha256, credit=str(item["credit"]))
