"""What a file claims: the answers, the wrong ones on the way, and what is odd about it. Nothing is trusted, nothing is run."""

import json
import os
import reprlib
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckptlab.course import journal
from ckptlab.course.exercise import Exercise
from ckptlab.course.grading.quizzes import QuizClaims, grade_quizzes
from ckptlab.course.grading.submission import FORMAT, KIND
from ckptlab.course.progress.fold import Tried, fold
from ckptlab.course.quiz.draw import Paper

MOST_BYTES = 16 << 20  # of one file; ten thousand attempts are about half of it
MOST_LINES = 200_000
_SHORT = reprlib.Repr()
_SHORT.maxstring = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What one file says."""

    file: str
    tried: Mapping[str, Tried]  # by the ids of exercises that there are
    attempts: frozenset[str]  # each as a whole: a journal that was copied has them too
    fell_for: Mapping[str, tuple[str, ...]]
    quizzes: QuizClaims
    faults: tuple[str, ...]


def read_claims(path: Path, exercises: Mapping[str, Exercise], papers: Sequence[Paper], now: Mapping[str, str]) -> Claims:
    """Read one file.

    Args:
        path: the file.
        exercises: all that there are, by id.
        papers: the quizzes, the final at the end.
        now: the exercises' digests, to tell which have changed since the file was made.
    """
    try:
        content, size = _read_start(path)
    except OSError as error:
        return _claim(path.name, b"", [f"is not read: {error.strerror}"], exercises, papers, now)
    faults = []
    if size > MOST_BYTES:
        faults = [f"has {size:,} bytes; only the first {MOST_BYTES:,} are read"]
        content = content[: content.rfind(b"\n") + 1]
    return _claim(path.name, content, faults, exercises, papers, now)


def _claim(
    file: str,
    content: bytes,
    faults: Sequence[str],
    exercises: Mapping[str, Exercise],
    papers: Sequence[Paper],
    now: Mapping[str, str],
) -> Claims:
    """Find out what a file's content says."""
    lines = content.split(b"\n", MOST_LINES)
    if lines[MOST_LINES:] not in ([], [b""]):
        faults = [*faults, f"has more than {MOST_LINES:,} lines; only these are read"]
    events, num_damaged = journal.parse(b"\n".join(lines[:MOST_LINES]))
    faults = [*faults, *([f"{num_damaged:,} lines are no events and are left out"] if num_damaged else [])]
    header = events[0] if events and events[0]["kind"] == KIND else None
    if events:
        faults += _look_at(header, now)
    attempts = [event for event in events if event["kind"] == "exercise" and isinstance(event.get("source"), str)]
    known = list(exercises)  # to be compared with: an id may be unhashable
    unknown = {str(event.get("id")) for event in attempts if event.get("id") not in known}
    if unknown:
        faults.append(f"answers unknown exercises: {', '.join(_SHORT.repr(id_) for id_ in sorted(unknown)[:5])}")
    if not attempts:
        faults.append("holds no attempt")
    quizzes = grade_quizzes(events, papers)
    return Claims(
        file=file,
        tried={id_: tried for id_, tried in fold(events).exercises.items() if id_ in exercises},
        attempts=frozenset(_whole(event) for event in attempts),
        fell_for={id_: names for id_, exercise in exercises.items() if (names := _fell_for(exercise, attempts))},
        quizzes=quizzes,
        faults=(*faults, *quizzes.faults),
    )


def _read_start(path: Path) -> tuple[bytes, int]:
    """Return a file's first bytes and its size; a link would show another file, and a pipe would make us wait."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(0, "it is a link, a folder or a pipe")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(MOST_BYTES), os.fstat(file.fileno()).st_size


def _look_at(header: journal.Event | None, now: Mapping[str, str]) -> list[str]:
    if header is None:
        return ["has no header line of 'ckptlab submit', and is read as a journal"]
    if header.get("format") != FORMAT:
        return [f"is of format {_SHORT.repr(header.get('format'))}, and this program knows {FORMAT}; read as far as it goes"]
    then = header.get("exercises")
    then = then if isinstance(then, dict) else {}
    changed = [id_ for id_, digest in now.items() if id_ in then and then[id_] != digest]
    return [f"was made from other versions of the exercises {', '.join(changed)}"] if changed else []


def _fell_for(exercise: Exercise, attempts: Sequence[journal.Event]) -> tuple[str, ...]:
    given = [event.get("same_as") for event in attempts if event.get("id") == exercise.id]
    return tuple(name for name in exercise.wrong if name in given)


def _whole(event: journal.Event) -> str:
    return json.dumps([event.get(name) for name in ("at", "id", "source")])
