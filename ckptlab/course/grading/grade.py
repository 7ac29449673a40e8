"""Grade a folder: read every file, grade its quizzes, run what is claimed right, mark what a person should look at."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ckptlab.course.exercise import Exercise
from ckptlab.course.grading.cautions import cautions
from ckptlab.course.grading.likeness import Traces, fingerprint, mark_alike
from ckptlab.course.grading.reading import Claims, read_claims
from ckptlab.course.grading.result import RIGHT, TRIED, UNTRIED, Graded, Outcome
from ckptlab.course.grading.running import run_again
from ckptlab.course.grading.submission import digests
from ckptlab.course.quiz.draw import FINAL, Paper
from ckptlab.course.quiz.passing import conclude
from ckptlab.course.quiz.sitting import open_paper
from ckptlab.errors import UsageError

Outcomes = Mapping[str, Outcome]  # by exercise id
Keep = Callable[[Sequence[Graded]], None]


def grade(folder: Path, exercises: Mapping[str, Exercise], tell: Callable[[str], None], keep: Keep) -> list[Graded]:
    """Grade every *.jsonl in `folder`, in the order of their names.

    Args:
        folder: what learners have handed in, one file each.
        exercises: all that there are, by id.
        tell: is given a line before every answer that is run.
        keep: is given the results so far, without what is the same in several files, after every file: an answer may end
            this process.

    Raises:
        UsageError: there is no such folder, or nothing in it.
    """
    papers, now = _papers(), digests()
    claims = [read_claims(path, exercises, papers, now) for path in _files(folder)]
    results: list[Graded] = []
    for number, claim in enumerate(claims, start=1):
        tell(f"file {number} of {len(claims)}: {claim.file}")
        results.append(_grade_file(claim, exercises, papers[-1], tell))
        keep(results)
    own = {id_: fingerprint(exercise.solution) for id_, exercise in exercises.items()}
    pairs = zip(claims, results, strict=True)
    alike = mark_alike({claim.file: _traces(claim, graded.outcomes, own) for claim, graded in pairs})
    return [replace(graded, marks=(*graded.marks, *alike[graded.file])) for graded in results]


def _papers() -> list[Paper]:
    """Read every bank once, and return all quizzes; the final is the last."""
    final = open_paper(FINAL)
    return [*(Paper(name=bank.name, title=bank.title, banks=(bank,)) for bank in final.banks), final]


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; give the one that holds what learners have handed in")
    files = sorted(path for path in folder.glob("*.jsonl") if not path.name.startswith("."))
    if not files:
        raise UsageError(f"{folder} holds no .jsonl file; learners make theirs with 'ckptlab submit NAME.jsonl'")
    return files


def _grade_file(claim: Claims, exercises: Mapping[str, Exercise], final: Paper, tell: Callable[[str], None]) -> Graded:
    tried = {id_: claim.tried[id_] for id_ in exercises if id_ in claim.tried and claim.tried[id_].num_attempts}
    right = {id_: found.source for id_, found in tried.items() if found.state.startswith("right")}
    again = run_again(right, exercises, lambda id_: tell(f"  {claim.file}: exercise {id_}"))
    outcomes = {id_: again.get(id_) or Outcome(TRIED if id_ in tried else UNTRIED) for id_ in exercises}
    states = {id_: outcome.state for id_, outcome in outcomes.items()}
    return Graded(
        file=claim.file,
        outcomes=outcomes,
        fell_for=claim.fell_for,
        given=claim.quizzes.given,
        course=conclude(claim.quizzes.final, right, final, outcomes, states),
        faults=claim.faults,
        marks=tuple(_to_read(claim, outcomes)),
    )


def _to_read(claim: Claims, outcomes: Outcomes) -> list[str]:
    found = {id_: cautions(claim.tried[id_].source) for id_, outcome in outcomes.items() if outcome.text}
    return [f"{id_}: read this one: {', '.join(reasons)}" for id_, reasons in found.items() if reasons]


def _traces(claim: Claims, outcomes: Outcomes, own: Mapping[str, str | None]) -> Traces:
    right = [id_ for id_, outcome in outcomes.items() if outcome.state in RIGHT.values()]
    prints = {id_: found for id_ in right if (found := fingerprint(claim.tried[id_].source)) and found != own[id_]}
    return Traces(attempts=claim.attempts, answers=prints)
