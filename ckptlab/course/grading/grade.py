"""Grade a folder: read every file, run every answer that is claimed right, mark what a person should look at."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ckptlab.course import content
from ckptlab.course.exercise import Exercise, read
from ckptlab.course.grading.cautions import cautions
from ckptlab.course.grading.likeness import Traces, fingerprint, mark_alike
from ckptlab.course.grading.reading import Claims, read_claims
from ckptlab.course.grading.result import RIGHT, TRIED, UNTRIED, Graded, Outcome
from ckptlab.course.grading.running import run_again
from ckptlab.course.grading.submission import digests
from ckptlab.errors import UsageError

Outcomes = Mapping[str, Outcome]  # by exercise id


def grade(folder: Path, tell: Callable[[str], None], *, seconds: float | None = None) -> list[Graded]:
    """Grade every *.jsonl in `folder`, in the order of their names.

    Args:
        folder: what learners have handed in, one file each.
        tell: is given a line before every answer that is run.
        seconds: for each world of ranks; None for as many as a learner has.

    Raises:
        UsageError: there is no such folder, or nothing in it.
    """
    exercises = {id_: read(path) for id_, path in content.exercises().items()}
    now = digests()
    claims = [read_claims(path, exercises, now) for path in _files(folder)]
    outcomes: list[Outcomes] = []
    for number, claim in enumerate(claims, start=1):
        tell(f"file {number} of {len(claims)}: {claim.file}")
        outcomes.append({id_: _outcome(exercise, claim, tell, seconds) for id_, exercise in exercises.items()})
    return conclude(exercises, claims, outcomes)


def conclude(exercises: Mapping[str, Exercise], claims: Sequence[Claims], outcomes: Sequence[Outcomes]) -> list[Graded]:
    """Put together what the files claim and what running them gave, and mark. Pure."""
    own = {id_: fingerprint(exercise.solution) for id_, exercise in exercises.items()}
    pairs = list(zip(claims, outcomes, strict=True))
    alike = mark_alike({claim.file: _traces(claim, found, own) for claim, found in pairs})
    return [
        Graded(
            file=claim.file,
            outcomes=found,
            fell_for=claim.fell_for,
            faults=claim.faults,
            marks=(*_to_read(claim, found), *alike[claim.file]),
        )
        for claim, found in pairs
    ]


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; give the one that holds what learners have handed in")
    files = sorted(path for path in folder.glob("*.jsonl") if not path.name.startswith("."))
    if not files:
        raise UsageError(f"{folder} holds no .jsonl file; learners make theirs with 'ckptlab submit NAME.jsonl'")
    return files


def _outcome(exercise: Exercise, claim: Claims, tell: Callable[[str], None], seconds: float | None) -> Outcome:
    tried = claim.tried.get(exercise.id)
    if tried is None or not tried.num_attempts:
        return Outcome(UNTRIED)
    if not tried.state.startswith("right"):
        return Outcome(TRIED)
    tell(f"  {claim.file}: exercise {exercise.id}")
    return run_again(exercise, tried.source, seconds)


def _to_read(claim: Claims, outcomes: Outcomes) -> list[str]:
    found = {id_: cautions(claim.tried[id_].source) for id_, outcome in outcomes.items() if outcome.text}
    return [f"{id_}: read this one: {', '.join(reasons)}" for id_, reasons in found.items() if reasons]


def _traces(claim: Claims, outcomes: Outcomes, own: Mapping[str, str | None]) -> Traces:
    right = [id_ for id_, outcome in outcomes.items() if outcome.state in RIGHT]
    prints = {id_: found for id_ in right if (found := fingerprint(claim.tried[id_].source)) and found != own[id_]}
    return Traces(attempts=claim.attempts, answers=prints)
