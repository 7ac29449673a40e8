"""Every exercise: its stub is untried, its solution right, and each wrong answer is refused and recognised as itself."""

import json
from pathlib import Path

import pytest

from ckptlab.course.content import exercises, labs
from ckptlab.course.exercise import read, run_answer

FILES = exercises()
WRONG = [(id_, name) for id_, path in FILES.items() for name in read(path).wrong]


@pytest.mark.parametrize("path", FILES.values(), ids=list(FILES))
def test_the_stub_is_untried_and_the_solution_right_at_every_world_size(path: Path) -> None:
    exercise = read(path)
    assert run_answer(exercise, exercise.stub).state == "untried"
    assert run_answer(exercise, exercise.solution).text == f"{exercise.id}: right."


@pytest.mark.parametrize(("id_", "name"), WRONG)
def test_a_wrong_answer_is_refused_and_recognised_as_itself(id_: str, name: str) -> None:
    exercise = read(FILES[id_])
    verdict = run_answer(exercise, exercise.sources[name])
    assert (verdict.state in ("wrong", "right, but"), verdict.same_as) == (True, name), verdict.text
    assert exercise.wrong[name] in verdict.text


@pytest.mark.parametrize("id_", FILES)
def test_its_heading_gives_its_title_and_its_minutes(id_: str) -> None:
    exercise = read(FILES[id_])
    title = exercise.title[0].lower() + exercise.title[1:]
    lines = {line.strip() for path in labs() for cell in json.loads(path.read_text())["cells"] for line in cell["source"]}
    assert f"### Exercise {id_}: {title} ({exercise.minutes} minutes)" in lines


@pytest.mark.parametrize("id_", FILES)
def test_its_cell_stands_in_its_lab_byte_for_byte(id_: str) -> None:
    cells = {"".join(cell["source"]) for path in labs() for cell in json.loads(path.read_text())["cells"]}
    assert f"%%exercise {id_}\n{read(FILES[id_]).stub}" in cells
