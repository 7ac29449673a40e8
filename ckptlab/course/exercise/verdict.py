"""`Verdict`: what a learner is told of an answer, from what the ranks of every world found. Pure but for the language."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckptlab.course.exercise.source import Exercise
from ckptlab.course.languages import Message, say
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
    title = Message(f"exercise.{exercise.id}.title", exercise.title)
    text = say("verdict.untried", "{id} {title}: not tried yet.", id=exercise.id, title=title)
    return Verdict(id=exercise.id, state="untried", text=text)


def right(exercise: Exercise, printed: str) -> Verdict:
    """Tell that every rank of every world found the answer right."""
    return Verdict(id=exercise.id, state="right", text=say("verdict.right", "{id}: right.", id=exercise.id), printed=printed)


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
    start = say("verdict.right-but", "right, but") if state == "right, but" else say("verdict.not-yet", "not yet.")
    diagnosis = helps_on(exercise)
    if same_as:
        diagnosis = say(f"exercise.{exercise.id}.{same_as[0]}", exercise.wrong[same_as[0]])
    where = [str(told["where"])] if "where" in told else []
    on_rank = [] if exercise.world_sizes == (1,) else [say("verdict.on-rank", "on rank {rank}", rank=rank)]
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
    return say("verdict.hint", 'hint("{id}") helps on.', id=exercise.id)


def ended(exercise: Exercise, world_size: int, error: WorldError, printed: str) -> Verdict:
    """Tell that the answer ended the world it ran in, in the world's own words."""
    how = str(error).partition("\n")[0]  # the rest advises to restart a world that is gone by now
    parts = [say("verdict.ended", "{id}: not yet. On {ranks}: {how}", id=exercise.id, ranks=_count(world_size), how=how)]
    if "did not answer" in how:
        parts.append(say("verdict.endless", "It runs on and on, or waits for something that does not come."))
    if "SIGKILL" in how:
        parts.append(say("verdict.killed", "It may have used up the memory."))
    text = " ".join(parts)
    return Verdict(id=exercise.id, state="wrong", text=text, printed=printed, ended=True)


def _what(told: Told) -> str:
    if told["state"] == "right, but":
        return say("verdict.cost", "it took {cost}, and {budget} are enough.", cost=told["cost"], budget=told["budget"])
    if told.get("no_answer"):
        text = "it waited for other ranks, and they did not come; every rank has to call a collective, in the same order."
        return say("verdict.no-answer", text)
    if "raised" in told:
        return _expected(told) + say("verdict.raised", "it raised {error}.", error=told["raised"])
    if "broke" in told:
        text = "your function gave {found}, and the check cannot go on with that ({error})."
        return say("verdict.broke", text, found=told["found"], error=told["broke"])
    return say("verdict.found", "expected {expected}, found {found}.", expected=told["expected"], found=told["found"])


def _expected(told: Told) -> str:
    return say("verdict.expected", "expected {expected}, but ", expected=told["expected"]) if "expected" in told else ""


def _count(world_size: int) -> str:
    return say("verdict.one-rank", "one rank") if world_size == 1 else say("verdict.ranks", "{count} ranks", count=world_size)
