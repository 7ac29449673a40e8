"""`Verdict`: what a learner is told of an answer, from what the ranks of every world found. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckptlab.course.exercise.source import Exercise
from ckptlab.errors import WorldError

STATES = ("untried", "wrong", "right, but", "right")  # "right, but" is over budget
Told = Mapping[str, object]  # what `judge` says on one rank
_PARTS: dict[str, list[set[str]]] = {  # of what it says besides, one of these by state
    "untried": [set()],
    "wrong": [{"raised", "no_answer"}, {"found", "broke"}, {"found", "expected"}],
    "right, but": [{"cost", "budget"}],
    "right": [set()],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of one attempt."""

    id: str
    state: str  # one of STATES
    text: str  # what the learner reads
    same_as: str | None = None  # the named wrong answer that gave the same in every case
    printed: str = ""  # what the answer printed in the world that the text speaks of
    ended: bool = False  # the answer ended that world


def is_told(answer: object) -> bool:
    """Whether a rank's answer has the shape of what `judge` says: code that reaches for the rank's pipe may send anything."""
    match answer:
        case {"state": str(state), "case": int(), "same_as": [*_], **rest} if state in STATES:
            return any(parts <= rest.keys() for parts in _PARTS[state])
    return False


def worst(by_rank: Sequence[Told]) -> tuple[int, Told]:
    """Return the rank to tell of, and what it found: the first case that is not right, the cause before its effects."""

    def order(rank: int) -> tuple[int, object, int, int]:
        told = by_rank[rank]
        severity = STATES.index(str(told["state"]))
        kind = 2 if "raised" not in told else 1 if told.get("no_answer") else 0  # a rank that raised let the others wait
        return severity, told["case"], kind, rank

    rank = min(range(len(by_rank)), key=order)
    return rank, by_rank[rank]


def untried(exercise: Exercise) -> Verdict:
    """Tell that the stub is still there."""
    return Verdict(id=exercise.id, state="untried", text=f"{exercise.id} {exercise.title}: not tried yet.")


def right(exercise: Exercise, printed: str) -> Verdict:
    """Tell that every rank of every world found the answer right."""
    return Verdict(id=exercise.id, state="right", text=f"{exercise.id}: right.", printed=printed)


def not_right(exercise: Exercise, rank: int, told: Told, printed: str, same_as: Sequence[str]) -> Verdict:
    """Tell of the first case that was not right (or over its budget), and which misconception would have given just this.

    Args:
        exercise: what was tried.
        rank: the rank that is told of.
        told: what it found.
        printed: what the answer printed there.
        same_as: the wrong answers that gave the same on every rank of every world.
    """
    state = str(told["state"])
    start = "right, but" if state == "right, but" else "not yet."
    diagnosis = exercise.wrong[same_as[0]] if same_as else helps_on(exercise)
    where = [str(told["where"])] if "where" in told else []
    on_rank = [] if exercise.world_sizes == (1,) else [f"on rank {rank}"]
    place = "".join(f"{part}: " for part in [", ".join(where + on_rank)] if part)
    found = f"{place}{_what(told)}"
    if state == "wrong":  # after a full stop
        found = found[:1].upper() + found[1:]
    text = f"{exercise.id}: {start} {found} {diagnosis}"
    if told.get("own_lines"):
        text += f"\n\n{told['own_lines']}"
    return Verdict(id=exercise.id, state=state, text=text, same_as=same_as[0] if same_as else None, printed=printed)


def helps_on(exercise: Exercise) -> str:
    """Say what a learner can do who does not get on."""
    return f'hint("{exercise.id}") helps on.'


def ended(exercise: Exercise, world_size: int, error: WorldError, printed: str) -> Verdict:
    """Tell that the answer ended the world it ran in, in the world's own words."""
    ranks = "one rank" if world_size == 1 else f"{world_size} ranks"
    how = str(error).partition("\n")[0]  # the rest advises to restart a world that is gone by now
    if "did not answer" in how:
        how += " It runs on and on, or waits for something that does not come."
    if "SIGKILL" in how:
        how += " It may have used up the memory."
    text = f"{exercise.id}: not yet. On {ranks}: {how}"
    return Verdict(id=exercise.id, state="wrong", text=text, printed=printed, ended=True)


def _what(told: Told) -> str:
    if told["state"] == "right, but":
        return f"it took {told['cost']}, and {told['budget']} are enough."
    if told.get("no_answer"):
        return "it waited for other ranks, and they did not come; every rank has to call a collective, in the same order."
    if "raised" in told:
        return f"{_expected(told)}it raised {told['raised']}."
    if "broke" in told:
        return f"your function gave {told['found']}, and the check cannot go on with that ({told['broke']})."
    return f"expected {told['expected']}, found {told['found']}."


def _expected(told: Told) -> str:
    return f"expected {told['expected']}, but " if "expected" in told else ""
