"""`Verdict`: what a learner is told of an answer, from what the ranks of every world found. Pure but for the language."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckptlab.course.exercise.source import Exercise
from ckptlab.course.languages import Message, say, tell
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
    state, place = str(told["state"]), _place(exercise, rank, told)
    diagnosis = helps_on(exercise)
    if same_as:
        diagnosis = Message(f"exercise.{exercise.id}.{same_as[0]}", exercise.wrong[same_as[0]])
    values = {"id": exercise.id, "place": place, "what": _what(told), "diagnosis": diagnosis}
    if state == "right, but":
        message = Message("verdict.right-but", "{id}: right, but {what} {diagnosis}", values)
        if place:
            message = Message("verdict.right-but-at", "{id}: right, but {place}: {what} {diagnosis}", values)
    else:
        message = Message("verdict.wrong", "{id}: not yet: {what} {diagnosis}", values)
        if place:
            message = Message("verdict.wrong-at", "{id}: not yet. {place}: {what} {diagnosis}", values)
    text = str(tell(message))
    if told.get("own_lines"):
        text += f"\n\n{told['own_lines']}"
    return Verdict(id=exercise.id, state=state, text=text, same_as=same_as[0] if same_as else None, printed=printed)


def helps_on(exercise: Exercise) -> Message:
    """Say what a learner can do who does not get on."""
    return Message("verdict.hint", 'hint("{id}") helps on.', {"id": exercise.id})


def ended(exercise: Exercise, world_size: int, error: WorldError, printed: str) -> Verdict:
    """Tell that the answer ended the world it ran in, in the world's own words."""
    how = str(error).partition("\n")[0]  # the rest advises to restart a world that is gone by now
    values = {"id": exercise.id, "ranks": _count(world_size), "how": how}
    message = Message("verdict.ended", "{id}: not yet. On {ranks}: {how}", values)
    if "did not answer" in how:
        why = Message("verdict.endless", "It runs on and on, or waits for something that does not come.")
        message = Message("verdict.ended-why", "{ended} {why}", {"ended": message, "why": why})
    if "SIGKILL" in how:
        why = Message("verdict.killed", "It may have used up the memory.")
        message = Message("verdict.ended-why", "{ended} {why}", {"ended": message, "why": why})
    text = str(tell(message))
    return Verdict(id=exercise.id, state="wrong", text=text, printed=printed, ended=True)


def _place(exercise: Exercise, rank: int, told: Told) -> Message | None:
    """Say where it was, as the beginning of a sentence if it is wrong, and in the middle of one if it is right, but."""
    is_first = told["state"] == "wrong"
    where = str(told.get("where", ""))
    values = {"where": where[:1].upper() + where[1:] if is_first else where, "rank": rank}
    if exercise.world_sizes == (1,):
        return Message("verdict.where", "{where}", values) if where else None
    if where:
        return Message("verdict.where-on-rank", "{where}, on rank {rank}", values)
    return Message("verdict.on-rank", "On rank {rank}" if is_first else "on rank {rank}", values)


def _what(told: Told) -> Message:
    if told["state"] == "right, but":
        return Message("verdict.cost", "it took {cost}, and {budget} are enough.", told)
    if told.get("no_answer"):
        text = "it waited for other ranks, and they did not come; every rank has to call a collective, in the same order."
        return Message("verdict.no-answer", text)
    if "raised" in told:
        text = "expected {expected}, but it raised {error}." if "expected" in told else "it raised {error}."
        return Message("verdict.raised", text, {**told, "error": told["raised"]})
    if "broke" in told:
        text = "your function gave {found}, and the check cannot go on with that ({error})."
        return Message("verdict.broke", text, {**told, "error": told["broke"]})
    return Message("verdict.found", "expected {expected}, found {found}.", told)


def _count(world_size: int) -> Message:
    if world_size == 1:
        return Message("verdict.one-rank", "one rank")
    return Message("verdict.ranks", "{count} ranks", {"count": world_size})
