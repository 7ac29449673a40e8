"""`python -m ckptlab.course.grading.child`: runs the answers of one file, on ranks with bounds.

What a rank sends is unpickled here, so an answer can make this process do anything: it is one that has nothing to lose.
Standard input is {"seconds": for a world, "answers": [[exercise id, source], ...]}; every outcome is a line of JSON.
"""

import json
import resource
import sys
import warnings

from ckptlab.course import content
from ckptlab.course.exercise import Exercise, attempt, read, run_answer
from ckptlab.course.exercise.verdict import helps_on
from ckptlab.course.grading.bounds import judge_in_bounds
from ckptlab.course.grading.result import NOT_RIGHT, NOT_RUN, RIGHT, Outcome
from ckptlab.course.languages import tell
from ckptlab.errors import UsageError, WorldError

MOST_CHARACTERS = 1000  # of a text, so that a line is short
MEMORY_BYTES = 4 << 30  # of data, for this process and for the one that loads torch: less than 1 GB is used


def main() -> None:
    """Run them one after the other."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    warnings.simplefilter("ignore")  # of the parser, about answers
    request = json.load(sys.stdin)
    attempt.SECONDS = request["seconds"]
    for id_, source in request["answers"]:
        outcome = _run(read(content.exercise_file(id_)), source)
        print(json.dumps([id_, outcome.state, outcome.text.partition("\n")[0][:MOST_CHARACTERS]]), flush=True)


def _run(exercise: Exercise, source: str) -> Outcome:
    try:
        verdict = run_answer(exercise, source, on_rank=judge_in_bounds)
    except UsageError as error:
        return Outcome(NOT_RIGHT, str(error))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the parser has its bounds too
        return Outcome(NOT_RIGHT, f"it is not Python: {error}")
    except (WorldError, OSError, EOFError):
        return Outcome(NOT_RUN, "no ranks could be started; grade this file again")
    advice = tell(helps_on(exercise))  # is for who answered
    text = verdict.text.replace(advice.english, "").replace(advice.translation or advice.english, "")
    return Outcome(RIGHT.get(verdict.state, NOT_RIGHT), text)


if __name__ == "__main__":
    main()
