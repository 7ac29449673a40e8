"""What a journal says of each exercise and prediction. Pure: events in, facts out, nothing trusted that is not well formed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ckptlab.course.content import lab_of
from ckptlab.course.exercise.verdict import STATES
from ckptlab.course.journal import Event


@dataclass(slots=True)
class Tried:
    """What was done in one exercise since its lab was last reset."""

    num_attempts: int = 0
    num_hints: int = 0
    state: str = STATES[0]  # then the best verdict
    source: str = ""  # of the best attempt, the newest of these


@dataclass(slots=True)
class Facts:
    """What a journal says."""

    exercises: dict[str, Tried] = field(default_factory=dict)
    predictions: dict[str, object] = field(default_factory=dict)  # the newest value by id

    def tried(self, id_: str) -> Tried:
        """Return what was done in an exercise, nothing at first."""
        return self.exercises.get(id_, Tried())


def fold(events: Iterable[Event]) -> Facts:
    """Go through the events as they stand: what was loaded after a reset counts, and no clock is trusted."""
    facts = Facts()
    for event in events:
        id_ = event.get("id")
        if event["kind"] == "reset":
            _reset(facts, event.get("lab"))
        elif not isinstance(id_, str):
            continue
        elif event["kind"] == "exercise":
            _try(facts.exercises.setdefault(id_, Tried()), event)
        elif event["kind"] == "hint":
            facts.exercises.setdefault(id_, Tried()).num_hints += 1
        elif event["kind"] == "predict":
            facts.predictions[id_] = event.get("value")
    return facts


def _try(tried: Tried, event: Event) -> None:
    verdict, source = event.get("verdict"), event.get("source")
    if not isinstance(verdict, str) or verdict not in STATES or not isinstance(source, str):
        return
    tried.num_attempts += 1
    if STATES.index(verdict) >= STATES.index(tried.state):
        tried.state, tried.source = verdict, source


def _reset(facts: Facts, lab: object) -> None:
    for by_id in (facts.exercises, facts.predictions):
        for id_ in [id_ for id_ in by_id if lab_of(id_) == lab]:
            del by_id[id_]
