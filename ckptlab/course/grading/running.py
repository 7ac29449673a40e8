"""Run the answers of one file again: in a process of its own, which gets none of the grader's secrets and may not hang it."""

import json
import os
from collections.abc import Callable, Mapping

from ckptlab.course.exercise import Exercise, attempt
from ckptlab.course.grading.parsing import MOST_CHARACTERS
from ckptlab.course.grading.result import NOT_RIGHT, NOT_RUN, RIGHT, Outcome
from ckptlab.ranks.apart import Lines, run_apart

START_UP_SECONDS = 60.0  # for loading torch, and for starting ranks
_MOST_SHOWN = 300  # of what is told of an answer
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONHOME", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")


def run_again(answers: Mapping[str, str], exercises: Mapping[str, Exercise], tell: Callable[[str], None]) -> dict[str, Outcome]:
    """Run the answers of one learner that are claimed right; whatever they do is an outcome.

    Args:
        answers: their sources by exercise id.
        exercises: all that there are, by id.
        tell: is given the id of an exercise before its answer is run.
    """
    too_long = {id_: source for id_, source in answers.items() if len(source) > MOST_CHARACTERS}
    outcomes = {id_: Outcome(NOT_RIGHT, _too_long(source)) for id_, source in too_long.items()}
    rest = [(id_, source) for id_, source in answers.items() if id_ not in too_long]
    if not rest:
        return outcomes
    given = json.dumps({"seconds": attempt.SECONDS, "answers": rest}).encode()
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    with run_apart("ckptlab.course.grading.child", given, environment) as lines:
        for id_, _ in rest:
            tell(id_)
            outcomes[id_] = _await(lines, exercises[id_])
            if outcomes[id_] is _NO_OUTCOME:
                break
    return dict.fromkeys(answers, _AFTER_IT) | outcomes


_NO_OUTCOME = Outcome(NOT_RUN, "running it came to no end, or to none that can be trusted: read this answer")
_AFTER_IT = Outcome(NOT_RUN, "an answer before it in this file ended the program that runs them")


def _await(lines: Lines, exercise: Exercise) -> Outcome:
    line = lines.next(len(exercise.world_sizes) * attempt.SECONDS + START_UP_SECONDS)
    try:
        match json.loads(line or b"null"):
            case [exercise.id, str(state), str(text)] if state in (*RIGHT.values(), NOT_RIGHT, NOT_RUN):
                return Outcome(state, _short(text))
    except (ValueError, RecursionError):
        pass  # an answer has written there
    return _NO_OUTCOME


def _too_long(source: str) -> str:
    return f"it has {len(source):,} characters; at most {MOST_CHARACTERS:,} are run"


def _short(text: str) -> str:
    line = text.partition("\n")[0].rstrip()
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]} …"
