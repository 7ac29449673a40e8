from pathlib import Path

import pytest

from ckptlab.course import content, journal
from ckptlab.course.exercise import Case, read, run_answer, try_answer
from ckptlab.errors import UsageError

ROWS = read(content.exercise_file("2.1"))
SUM = '''"""A sum over ranks

The task.
"""

import os
import torch
import torch.distributed as dist
from ckptlab.course.exercise import Case

MINUTES = 1
WORLD_SIZES = (2,)
HINTS = ("a",)


def total(mine):
    raise NotImplementedError


def solution(mine):
    dist.all_reduce(mine)
    return mine, 1


def wrong_twice(mine):
    """Once is enough."""
    dist.all_reduce(mine)
    return mine, 2


def check(answer, rank, world_size):
    for start in (1, 10):
        found, calls = answer(torch.tensor([start + rank]))
        expected = torch.tensor([2 * start + 1])
        yield Case(found, expected, where=f"from {start}", cost=calls, budget=1)
'''


@pytest.fixture(scope="module")
def total(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("exercises") / "ex07_1_total.py"
    path.write_text(SUM)
    return read(path)


def rows(body: str) -> str:
    return f"def rows_of_rank(num_rows, world_size, rank):\n    {body}"


def test_an_exercise_is_read_without_running_it() -> None:
    assert (ROWS.id, ROWS.title, ROWS.name, ROWS.minutes, ROWS.world_sizes) == (
        "2.1", "The rows of a rank", "rows_of_rank", 6, (1, 2, 3, 4),
    )  # fmt: skip
    assert ROWS.stub.startswith("def rows_of_rank(")
    assert ROWS.stub.endswith("raise NotImplementedError")
    assert ROWS.solution.startswith("def rows_of_rank(")
    assert list(ROWS.wrong) == ["wrong_rest_to_the_last", "wrong_spread_like_numpy"]


def test_the_verdict_tells_the_first_case_that_differs_and_the_misconception_behind_it() -> None:
    verdict = run_answer(ROWS, ROWS.sources["wrong_rest_to_the_last"])
    assert verdict.text == (
        "2.1: not yet. 7 rows over 2 ranks, on rank 0: expected (0, 4), found (0, 3). The rows that are left over do not "
        "go to the last rank: torch.chunk rounds the length up, so the last is short."
    )
    assert run_answer(ROWS, ROWS.stub).text == "2.1 The rows of a rank: not tried yet."


def test_an_answer_cannot_use_what_the_check_computes_with() -> None:
    boxes = read(content.exercise_file("7.1"))
    assert "def _shared(" in boxes.path.read_text()
    verdict = run_answer(boxes, "def intersect(one, other):\n    return _shared(one, other)")
    assert (verdict.state, "NameError: name '_shared' is not defined" in verdict.text) == ("wrong", True)


def test_what_an_answer_raises_is_told_with_its_own_lines_counted_as_in_the_cell() -> None:
    verdict = run_answer(ROWS, rows("print('seen')\n    return [][num_rows]"))
    first, *lines = verdict.text.splitlines()
    assert first.startswith(
        "2.1: not yet. 8 rows over 1 ranks, on rank 0: expected (0, 8), but it raised IndexError: list index"
    )
    assert lines[2:4] == ['  File "<exercise 2.1>", line 4, in rows_of_rank', "    return [][num_rows]"]
    assert not any("ckptlab" in line for line in lines)
    assert verdict.printed == "[rank 0] seen\n" * 3


def test_a_not_implemented_error_that_the_stub_did_not_raise_is_an_attempt() -> None:
    assert run_answer(ROWS, rows("import torch; torch.nn.Module()(1)")).state == "wrong"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import os; os._exit(3)", "On one rank: rank 0 exited with code 3."),
        ("import os; os.kill(os.getpid(), 11)", "On one rank: rank 0 was killed by SIGSEGV."),
        ("while True: print('on and on' * 1000)", "On one rank: rank 0 printed more than 20 MB in one run and was ended."),
        ("while True: pass", "On one rank: rank 0 did not answer within 1 s. It runs on and on, or waits for something"),
    ],
)
def test_what_ends_a_world_is_told_in_words_and_costs_nothing_else(
    body: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "pass" in body:
        monkeypatch.setattr("ckptlab.course.exercise.attempt.SECONDS", 1.0)
    verdict = run_answer(ROWS, rows(body))
    assert verdict.state == "wrong"
    assert verdict.text.startswith(f"2.1: not yet. {told}")
    assert len(verdict.printed) < 5000
    assert run_answer(ROWS, ROWS.solution).state == "right"


def test_ranks_that_wait_for_each_other_in_vain_are_told_of_the_collective(total, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckptlab.course.exercise.attempt.SECONDS", 3.0)
    verdict = run_answer(total, "def total(mine):\n    if dist.get_rank() == 1: dist.barrier()\n    return mine, 1")
    assert "it waited for other ranks, and they did not come" in verdict.text
    assert "dist.barrier()" in verdict.text


def test_over_budget_is_right_but(total) -> None:
    verdict = run_answer(total, total.sources["wrong_twice"])
    assert verdict.text == "7.1: right, but from 1, on rank 0: it took 2, and 1 are enough. Once is enough."
    assert (verdict.state, verdict.same_as) == ("right, but", "wrong_twice")
    assert run_answer(total, total.solution).state == "right"


def test_an_answer_that_the_check_cannot_use_is_named(total) -> None:
    assert "your function gave None, and the check cannot go on with that" in run_answer(total, "def total(mine): pass").text
    raised = run_answer(total, "def total(mine): raise KeyError('a')").text
    assert "it raised KeyError: 'a'" in raised


def test_values_are_compared_as_numbers_and_shown_short() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError

        __hash__ = None  # type: ignore[assignment]

    assert not Case(Odd(), 1, where="").is_right
    assert Case((1, [2]), (1, [2]), where="").is_right
    assert not Case([1], (1,), where="").is_right
    assert Case([1] * 10**6, [1] * 10**6, where="").is_right


def test_an_attempt_is_one_line_of_the_journal_and_a_stub_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path))
    try_answer(ROWS, ROWS.stub)
    wrong = try_answer(ROWS, ROWS.sources["wrong_spread_like_numpy"])
    (event,) = journal.read()
    assert wrong.state == "wrong"
    assert (event["kind"], event["id"], event["verdict"], event["same_as"]) == ("exercise", "2.1", "wrong", wrong.same_as)
    assert event["source"] == ROWS.sources["wrong_spread_like_numpy"]
    monkeypatch.setenv("CKPTLAB_HOME", "/dev/null/nowhere")
    assert "2.1: right.\nThis attempt is not in your journal" in try_answer(ROWS, ROWS.solution).text


def test_what_is_no_answer_is_refused_before_any_rank_starts() -> None:
    with pytest.raises(UsageError, match="does not define rows_of_rank"):
        run_answer(ROWS, "def rows(): pass")
    with pytest.raises(SyntaxError):
        run_answer(ROWS, "def rows_of_rank(")
    with pytest.raises(UsageError, match=r"there is no exercise 2\.99; there are .*2\.1"):
        content.exercise_file("2.99")
