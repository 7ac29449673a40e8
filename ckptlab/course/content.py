"""Where the course's notebooks, exercises and question banks stand, and by which ids they are called. Opens none of them.

A notebook is `labs/02_shards.ipynb`, an exercise of it `labs/exercises/ex02_1_rows_of_a_rank.py`, called 2.1.
"""

import re
from pathlib import Path

import ckptlab
from ckptlab.errors import UsageError

LABS = Path(ckptlab.__file__).parents[1] / "labs"
EXERCISES = LABS / "exercises"
QUIZZES = LABS.parent / "quizzes"


def labs() -> list[Path]:
    """Return the numbered notebooks, in order."""
    return sorted(LABS.glob("[0-9][0-9]_*.ipynb"))


def notebooks() -> list[Path]:
    """Return all that a learner gets a copy of: the labs, the notebook of the final quiz, and the starts in other languages."""
    return [*labs(), *LABS.glob("quiz.ipynb"), *starts()]


def starts() -> list[Path]:
    """Return the notebooks that lead to the labs in another language: `labs/start.ig.ipynb`."""
    return sorted(LABS.glob("start.*.ipynb"))


def exercises() -> dict[str, Path]:
    """Return the exercises' files by id ("2.1"), in order."""
    found = {id_: path for path in EXERCISES.glob("ex*.py") if (id_ := id_of(path))}
    return {id_: found[id_] for id_ in sorted(found, key=lambda id_: [int(part) for part in id_.split(".")])}


def id_of(path: Path) -> str | None:
    """Return the id that an exercise's file name gives it ("2.1"); None when it is not named like one."""
    match = re.fullmatch(r"ex(\d\d)_(\d+)_\w+", path.stem)
    return f"{int(match[1])}.{int(match[2])}" if match else None


def exercise_file(id_: str) -> Path:
    """Return an exercise's file; raise `UsageError` when there is none."""
    there = exercises()
    if not isinstance(id_, str):
        raise UsageError(f'write the number of an exercise in quotes, as in "2.1"; found {id_!r}')
    if id_ not in there:
        raise UsageError(f"there is no exercise {id_}; there are {', '.join(there)}")
    return there[id_]


def lab_of(id_: object) -> str:
    """`lab_of("2.1")` and `lab_of("2.p1")` are "02"; what is no such id belongs to lab ""."""
    match = re.fullmatch(r"(\d{1,2})\.[\w-]+", id_) if isinstance(id_, str) else None
    return f"{int(match[1]):02}" if match else ""
