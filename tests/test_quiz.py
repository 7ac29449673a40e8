"""A quiz from draw to mark, and its attempts from the journal: pure functions, each answer graded by the documented rule."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing import right_one
from small_bank import TEXT, small_paper

from ckptlab.course import journal
from ckptlab.course.quiz.attempts import fold, sheet_of, standing
from ckptlab.course.quiz.bank import bank_files, read
from ckptlab.course.quiz.draw import Drawn, Paper
from ckptlab.course.quiz.grade import grade
from ckptlab.course.quiz.passing import passed
from ckptlab.course.quiz.spelling import same
from ckptlab.errors import UsageError

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def paper(tmp_path_factory) -> Paper:
    return small_paper(tmp_path_factory.mktemp("bank"))


@pytest.fixture(scope="module")
def every() -> Paper:
    return Paper(name="final", title="Final", banks=tuple(map(read, bank_files().values())))


def drawn(paper: Paper, id_: str, number: int = 1) -> Drawn:
    return next(one for one in paper.draw("seed", number) if one.question.id == id_)


def told(mark) -> list[str]:
    return [message.text for message in mark.because]


# drawing


def test_an_attempt_is_drawn_the_same_every_time_and_by_every_program(paper: Paper) -> None:
    first = paper.draw("seed", 1)
    assert first == paper.draw("seed", 1)
    assert [one.order for one in first if one.question.id == "steps-of-a-save"] == [(1, 2, 3, 0)]  # as sha256sum has it


@given(st.text(), st.integers(1, 50))
def test_the_next_attempt_shows_other_variants_and_all_options_whatever_the_seed(paper: Paper, seed: str, number: int) -> None:
    for one, other in zip(paper.draw(seed, number), paper.draw(seed, number + 1), strict=True):
        assert len(one.question.variants) == 1 or one.variant != other.variant
        shown = len(one.question.options) or len(one.question.items)
        assert sorted(one.order) == (list(range(shown)) if shown else [0, 1] if one.question.pairs else [])
        assert one.question.type != "order" or list(one.order) != sorted(one.order)


def test_options_are_not_shown_in_the_banks_order_more_often_than_in_others(paper: Paper) -> None:
    orders = Counter(paper.draw(f"seed {number}", 1)[0].order for number in range(1200))
    assert len(orders) == 6
    assert 150 < min(orders.values()) <= max(orders.values()) < 250  # each of 6 orders: 200, standard deviation 13


@given(st.text())
def test_the_final_draws_15_evenly_over_labs_and_no_exercise(every: Paper, seed: str) -> None:
    shown = every.draw(seed, 1)
    labs = Counter(one.question.bank for one in shown)
    assert len(shown) == len({one.key for one in shown}) == 15
    assert set(labs) == {bank.name for bank in every.banks}
    assert max(labs.values()) - min(labs.values()) <= 1
    assert all(one.question.type != "exercise" for one in shown)
    assert Counter(one.question.level for one in shown)["recall"] <= 5


def test_another_attempt_at_the_final_asks_other_questions(every: Paper) -> None:
    asked = [{one.key for one in every.draw("seed", number)} for number in range(1, 5)]
    assert len(set.union(*asked)) > 20


# grading


def test_single_tells_why_the_chosen_option_is_wrong_or_right(paper: Paper) -> None:
    question = drawn(paper, "last-rank")
    assert (grade(question, "chunk").credit, grade(question, "rest").credit) == (1, 0)
    assert told(grade(question, "rest")) == ["That rounds down; `torch.chunk` rounds up."]


@pytest.mark.parametrize(
    ("ticked", "credit"),
    [
        (["one", "quarters"], 1),
        (["one"], Fraction(1, 2)),
        (["one", "quarters", "none"], Fraction(1, 2)),
        (["one", "none"], 0),
        (["none"], 0),
    ],
)
def test_multiple_takes_wrong_ticks_from_right_ones(paper: Paper, ticked: list[str], credit: Fraction) -> None:
    assert grade(drawn(paper, "replicas"), ticked).credit == credit


RIGHT = ["10.5", "10,5", "10.7", "10,5 GB", "10.5gb", "1.05e1", "+10.50"]
WRONG = ["10.72", "-10.5", "3.5", "1,050"]


@pytest.mark.parametrize(("typed", "credit"), [*((one, 1) for one in RIGHT), *((one, 0) for one in WRONG)])
def test_numeric_takes_what_is_within_two_percent_in_the_right_unit(paper: Paper, typed: str, credit: int) -> None:
    question = next(one for one in (drawn(paper, "bytes-per-rank", n) for n in (1, 2)) if one.values["billions"] == 7)
    assert grade(question, typed).credit == credit


def test_a_comma_is_read_as_its_writer_may_mean_it(tmp_path: Path) -> None:
    text = TEXT.replace("gigabytes: 10.5", "gigabytes: 1024").replace("gigabytes: 9.75", "gigabytes: 1.024")
    paper = small_paper(tmp_path, text)
    for number in (1, 2):
        assert grade(drawn(paper, "bytes-per-rank", number), "1,024").credit == 1


def test_a_likely_wrong_number_is_told_what_it_means(paper: Paper) -> None:
    question = drawn(paper, "bytes-per-rank")
    assert told(grade(question, str(question.values["billions"] * 4 / question.values["ranks"]))) == ["Only the weights."]
    assert told(grade(question, "77"))[0] == "Right is {answer}."


def test_another_unit_is_no_answer_and_words_matter_only_where_a_unit_is_asked_for(paper: Paper, tmp_path: Path) -> None:
    for typed in ("10.5 MB", "10.5 GB a rank"):
        with pytest.raises(UsageError, match="leave the unit out"):
            grade(drawn(paper, "bytes-per-rank"), typed)
    without = drawn(small_paper(tmp_path, TEXT.replace("    unit: GB\n", "")), "bytes-per-rank")
    assert grade(without, f"{without.values['gigabytes']} of them").is_right


@pytest.mark.parametrize("typed", ["replicate", "  REPLICATE() ", "`Replicate()`", "ịkọ", "i\u0323ko\u0323", "Ịkọ"])
def test_text_takes_any_capitals_spaces_and_composition(paper: Paper, typed: str) -> None:
    mark = grade(drawn(paper, "placement"), typed)
    assert (mark.credit, told(mark)) == (1, ["It is not cut on this axis."])


def test_capitals_are_compared_in_any_alphabet() -> None:
    assert same("STRASSE", "straße")
    assert not same("Shard(0)", "Shard(1)")


def test_text_takes_letters_without_their_marks_and_tells_the_right_ones(paper: Paper) -> None:
    mark = grade(drawn(paper, "placement"), "iko")
    assert mark.credit == 1
    assert mark.because[0].values == {"text": "Ịkọ"}
    assert told(grade(drawn(paper, "placement"), "PARTIAL")) == ["A term of a sum."]
    assert grade(drawn(paper, "placement"), "Shard").credit == 0


@pytest.mark.parametrize(
    ("places", "credit"),
    [
        ([0, 1, 2, 3], 1),
        ([3, 2, 1, 0], 0),
        ([1, 0, 2, 3], Fraction(2, 3)),
        ([0, 2, 1, 3], Fraction(2, 3)),
        ([2, 3, 0, 1], Fraction(2, 3)),
    ],
)
def test_order_counts_neighbours_that_stand_the_right_way_round(paper: Paper, places: list[int], credit: Fraction) -> None:
    assert grade(drawn(paper, "steps-of-a-save"), places).credit == credit


def test_match_counts_pairs_and_equal_right_sides_are_one(paper: Paper) -> None:
    question = drawn(paper, "runs")
    assert [grade(question, given).credit for given in ([0, 1, 0], [2, 1, 2], [0, 0, 0], [1, 0, 1])] == [
        1,
        1,
        Fraction(2, 3),
        0,
    ]


@pytest.mark.parametrize(
    ("id_", "given_"),
    [
        ("last-rank", "all"),
        ("last-rank", ["chunk"]),
        ("replicas", []),
        ("replicas", ["one", ["none"]]),
        ("replicas", {"one": 1}),
        ("bytes-per-rank", "GB"),
        ("bytes-per-rank", 10.5),
        ("bytes-per-rank", "1e99999"),
        ("bytes-per-rank", "9" * 5000),
        ("placement", "   "),
        ("placement", "x" * 201),
        ("steps-of-a-save", [0, 1, 2]),
        ("steps-of-a-save", [0, 1, 2, 2]),
        ("steps-of-a-save", [0, 1, 2, 4]),
        ("steps-of-a-save", [0, True, 2, 3]),
        ("runs", [-1, 0, 1]),
        ("rows-of-a-rank", "right"),
    ],
)
def test_what_is_no_answer_is_refused_and_not_marked(paper: Paper, id_: str, given_: object) -> None:
    with pytest.raises(UsageError):
        grade(drawn(paper, id_), given_)


def test_a_question_that_was_left_out_has_no_credit_and_its_key_is_told(paper: Paper) -> None:
    for question in paper.draw("seed", 1):
        mark = grade(question, None)
        assert mark.credit == 0
        assert mark.because


# attempts


def at(minutes: float) -> str:
    return (NOON + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


def begun(paper: Paper, number: int = 1, seed: str = "seed", minutes: float = 0) -> journal.Event:
    members = {"quiz": paper.name, "seed": seed, "number": number, "sha256": paper.sha256}
    return {"v": 1, "at": at(minutes), "kind": "quiz-begin", **members}


def answered(paper: Paper, key: tuple[str, str], given_: object, number: int = 1, minutes: float = 0) -> journal.Event:
    members = {"quiz": paper.name, "seed": "seed", "number": number, "bank": key[0], "question": key[1], "given": given_}
    return {"v": 1, "at": at(minutes), "kind": "quiz-answer", **members}


def attempt(paper: Paper, number: int = 1, minutes: float = 0, wrong: int = 0) -> list[journal.Event]:
    """Return a whole attempt, the first questions left out."""
    shown = paper.draw("seed", number)
    given_ = [None if place < wrong else right_one(one) for place, one in enumerate(shown)]
    return [
        begun(paper, number, minutes=minutes),
        *(answered(paper, one.key, value, number, minutes) for one, value in zip(shown, given_, strict=True)),
    ]


def stands(paper: Paper, events: list[journal.Event], minutes: float = 0):
    return standing(paper, fold(events).get(paper.name, []), NOON + timedelta(minutes=minutes))


def test_an_attempt_goes_on_where_it_stopped(paper: Paper) -> None:
    events = attempt(paper)
    assert stands(paper, []).open is None
    for count in range(1, len(events)):
        sheet = stands(paper, events[:count]).open
        assert sheet is not None
        assert (sheet.next, sheet.points) == (count - 1, count - 1)
    now = stands(paper, events)
    assert (now.open, now.best.points, now.number) == (None, len(events) - 1, 2)


def test_the_first_answer_to_a_question_counts_and_what_is_none_does_not_stand_in_its_way(paper: Paper) -> None:
    key = ("02", "last-rank")
    events = [begun(paper), answered(paper, key, 7), answered(paper, key, "rest"), answered(paper, key, "chunk")]
    (first, *_) = stands(paper, events).open.answers
    assert (first.given, first.mark.credit) == ("rest", 0)


def test_a_number_that_python_would_not_print_is_of_no_attempt(paper: Paper) -> None:
    events = [{**begun(paper), "number": int("9" * 4000)}, begun(paper)]
    assert [sheet.number for sheet in fold(events)["02"]] == [1]


@pytest.mark.parametrize("typed", ["\x1b[A", "half a \udce1", "a\0b"])
def test_what_a_key_of_the_terminal_sent_is_no_answer(paper: Paper, typed: str) -> None:
    with pytest.raises(UsageError, match="letters, digits and signs"):
        grade(drawn(paper, "placement"), typed)


def test_two_notebooks_that_begin_at_once_have_the_same_attempt(paper: Paper) -> None:
    events = [begun(paper), begun(paper), answered(paper, ("02", "last-rank"), "chunk")]
    assert [sheet.number for sheet in fold(events)["02"]] == [1]
    assert stands(paper, events).open.points == 1


def test_the_best_attempt_counts(paper: Paper) -> None:
    events = [*attempt(paper, 1, wrong=1), *attempt(paper, 2, wrong=3), *attempt(paper, 3, wrong=2)]
    assert (stands(paper, events).best.attempt.number, stands(paper, events).best.points) == (1, 6)


def test_a_bank_that_has_changed_ends_its_attempts(paper: Paper, tmp_path: Path) -> None:
    changed = small_paper(tmp_path, TEXT.replace("version: 3", "version: 4"))
    for events in (attempt(paper), attempt(paper)[:3]):
        now = stands(changed, events)
        assert (now.is_outdated, now.open, now.best, now.number) == (True, None, None, 2)
    assert not stands(changed, [*attempt(paper), *attempt(changed, 2)]).is_outdated


def test_a_reset_forgets_the_quiz_of_its_lab_and_no_other(paper: Paper, every: Paper) -> None:
    events = [*attempt(paper), *attempt(every), {"v": 1, "at": at(1), "kind": "reset", "lab": "02"}]
    assert stands(paper, events).best is None
    assert stands(paper, [*events, *attempt(paper)]).best.points == 7
    assert stands(every, events).best is not None


def test_the_final_waits_ten_minutes_after_the_end_of_the_last_attempt_and_other_quizzes_do_not(
    paper: Paper, every: Paper
) -> None:
    events = attempt(every, minutes=0)
    assert [stands(every, events, minutes).wait for minutes in (0, 9, 10, 60)] == [
        timedelta(minutes=left) for left in (10, 1, 0, 0)
    ]
    assert stands(every, events, -60).wait == timedelta()  # the clock was ahead, and would lock the learner out
    assert stands(paper, attempt(paper), 0).wait == timedelta()
    another = [*events, begun(every, 2)]  # by a second notebook, before the first had ended
    assert stands(every, another, 5).open is None
    assert stands(every, another, 10).open.attempt.number == 2


def test_what_is_not_well_formed_counts_for_nothing(paper: Paper) -> None:
    good = attempt(paper)[:2]
    strange = [
        {**good[0], "sha256": 5},
        {**good[0], "number": "1"},
        {**good[0], "number": True},
        {**good[0], "seed": None},
        {**good[0], "quiz": ["02"]},
        {**good[1], "question": {}},
        {**good[1], "number": 9},
        {"v": 1, "at": "", "kind": "reset", "lab": ["02"]},
    ]
    assert stands(paper, [*strange, *good, *strange]).open == stands(paper, good).open


# passing


def test_passing_needs_the_final_and_every_exercise_of_three_labs_run_again(every: Paper) -> None:
    exercises = ["02.1", "3.1", "3.2", "4.1", "6.1"]
    asked = ["3.1", "3.2", "4.1", "6.1"]
    events = [*attempt(every, wrong=3)]
    events += [
        {"v": 1, "at": at(1), "kind": "exercise", "id": id_, "verdict": "right", "source": f"source of {id_}"} for id_ in asked
    ]
    ran = dict.fromkeys(asked, "right")
    result = passed(events, every, exercises, ran)
    assert (result.has_passed, result.score, result.exercises, result.missing) == (True, Fraction(12, 15), tuple(asked), ())
    assert result.banks == every.sha256
    assert len(result.evidence) == 15 + 4
    assert [one["credit"] for one in result.evidence[:15]] == ["0"] * 3 + ["1"] * 12
    assert passed(attempt(every, wrong=4) + events[16:], every, exercises, ran).has_passed is False
    assert passed(events, every, exercises, ran | {"4.1": "wrong"}).missing == ("4.1",)
    assert passed(events, every, exercises, {}).has_passed is False
    assert passed(events, every, exercises[:-1], ran).missing == ("06",)  # a lab without exercises proves nothing
    assert passed([], every, exercises, ran).score is None


def test_a_score_is_graded_again_and_not_taken_from_the_journal(every: Paper) -> None:
    boasting = [{**event, "credit": "1", "mark": 1} for event in attempt(every, wrong=15)]
    assert passed(boasting, every, [], {}).score == 0
    assert sheet_of(every, fold(boasting)["final"][0]).points == 0
