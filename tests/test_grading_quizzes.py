"""What is handed in of the quizzes is graded again; who passed gets a certificate from nothing but the results."""

import csv
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from passing import claim_exercises, right_one, take_final

from ckptlab.cli.main import run
from ckptlab.course import certificate, journal
from ckptlab.course.certificate import keys
from ckptlab.course.grading.quizzes import Given, count_questions, grade_quizzes
from ckptlab.course.quiz import sitting
from ckptlab.course.quiz.draw import Drawn, Paper


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CKPTLAB_VERIFY_PAGE", raising=False)
    return tmp_path / "home"


@pytest.fixture(scope="module")
def final() -> Paper:
    return sitting.open_paper("final")


def begun(paper: Paper, **changes: object) -> journal.Event:
    members = {"quiz": paper.name, "seed": "s", "number": 1, "sha256": paper.sha256} | changes
    return {"v": 1, "at": "2026-12-01T18:00:00Z", "kind": "quiz-begin", **members}


def answered(paper: Paper, one: Drawn, given: object, **changes: object) -> journal.Event:
    bank, question = one.key
    event = begun(paper) | {"kind": "quiz-answer", "bank": bank, "question": question, "given": given}
    return {name: value for name, value in event.items() if name != "sha256"} | changes


def attempt(paper: Paper, number: int = 1, left_out: int = 0) -> list[journal.Event]:
    shown = paper.draw("s", number)
    given = [None if place < left_out else right_one(one) for place, one in enumerate(shown)]
    answers = [answered(paper, one, value, number=number) for one, value in zip(shown, given, strict=True)]
    return [begun(paper, number=number), *answers]


# from a journal to a certificate


def test_who_passed_is_graded_again_and_gets_a_certificate_from_the_results_alone(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    room, site = tmp_path / "room", tmp_path / "site"
    room.mkdir()
    claim_exercises()
    take_final(left_out=2)
    assert run(["submit", str(room / "Ada Lovelace.jsonl")]) == 0
    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path / "of_ben"))
    for event in journal.parse((home / "journal.jsonl").read_bytes())[0]:
        journal.append_all([event | {"source": "def ("} if "source" in event else event])  # claims, and nothing behind them
    assert run(["submit", str(room / "ben.jsonl")]) == 0
    assert run(["grade", str(room)]) == 0
    out = capsys.readouterr().out
    rows = list(csv.DictReader((room / "results.csv").read_text().splitlines()))
    assert [(row["final"], row["passed"]) for row in rows] == [("86 %", "yes"), ("86 %", "no")]
    assert "10     10     86 %   yes     Ada Lovelace.jsonl" in out
    key, did = str(tmp_path / "key.pem"), run_for(capsys, "certificate", "keygen", str(tmp_path / "key.pem"))
    options = ["--key", key, "--issuer", "Example University"]
    (line,) = run_for(capsys, "certificate", "issue", str(room / "results.json"), str(site), *options).splitlines()
    (folder,) = (site / "c").iterdir()
    trusted = tmp_path / "issuers.json"
    trusted.write_text(json.dumps({"issuers": [{"id": did.strip(), "name": "my school", "revoked": []}]}))
    told = run_for(capsys, "certificate", "verify", str(folder / "certificate.png"), "--trust", str(trusted))
    assert all(text in told for text in ("Signed by my school", "Ada Lovelace", "86 %", line.split()[0]))
    assert "Exercises run again: 10. Quiz answers graded again: 15." in told


def run_for(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert run(list(arguments)) == 0
    return capsys.readouterr().out


def test_a_learner_makes_a_self_issued_certificate_only_when_everything_is_right_again(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    take_final(left_out=3)
    journal.append("exercise", id="4.1", verdict="right", source="def (")
    assert run(["certificate", "make", "mine"]) == 1
    certificate("Ada")
    told = capsys.readouterr().out.splitlines()
    missing = "To pass the course: the exercises 3.1, 3.2, 3.3, 3.4, 4.1, 4.2, 4.3, 6.1, 6.2, 6.3."
    assert (told[0], told[-1]) == (missing, f"No certificate yet. {missing}")
    assert [file.name for file in tmp_path.iterdir()] == ["home"]
    assert [file.name for file in home.iterdir()] == ["journal.jsonl"]  # no key was made
    claim_exercises()
    command = [sys.executable, "-c", "from ckptlab.cli.main import main; main()", "certificate", "make", "mine"]
    out = subprocess.run([*command, "--name", "Ada Lovelace"], capture_output=True, text=True, check=True).stdout
    (folder,) = Path("mine").iterdir()
    assert "Self-issued" in out
    assert folder.name in out
    assert run(["certificate", "verify", str(folder / "credential.json")]) == 3
    assert keys.did_of(keys.own_key()) in capsys.readouterr().out


# grading again


def test_the_best_finished_attempt_at_the_final_counts_and_every_answer_is_graded_again(final: Paper) -> None:
    others, *answers = attempt(final, 4)
    events = [others | {"sha256": {**final.sha256, "02": "other"}}, *answers]  # the questions have changed since
    events += [*attempt(final, 1, left_out=9), *attempt(final, 2, left_out=3), *attempt(final, 3)[:-1]]
    boasting = [event | {"credit": "1", "mark": 1, "score": 1} for event in events]
    assert grade_quizzes(boasting, [final]).final.score * 15 == 12
    assert grade_quizzes(events[-15:], [final]).final is None


def test_each_learner_counts_once_a_question_with_the_first_answer(final: Paper) -> None:
    lab = Paper(name="02", title="", banks=(final.banks[2],))
    one = next(one for one in lab.draw("s", 1) if one.question.type == "single")
    wrong = [option.id for option in one.question.options if not option.right]

    def learner(*given: object) -> Mapping[tuple[str, str], Given]:
        tries = [(begun(lab, number=n), answered(lab, one, value, number=n)) for n, value in enumerate(given, start=1)]
        return grade_quizzes([event for attempt in tries for event in attempt], [lab, final]).given

    right = right_one(one)
    room = [learner(wrong[0], right), *[learner(right)] * 3, *[learner(wrong[1])] * 2, learner(None), {}]
    (row,) = count_questions(room)
    assert (row.bank, row.question) == one.key
    assert (row.answered, row.right, row.wrong, row.chosen) == (6, 3, wrong[1], 2)


def test_what_no_one_can_have_answered_costs_only_itself(final: Paper) -> None:
    good, (first, *_) = attempt(final), final.draw("s", 1)
    strange = [
        begun(final, sha256=3), begun(final, sha256={"02": ["x"]}, seed="t"), begun(final, number=True),
        begun(final, seed=None), begun(final, quiz="final "), begun(final, quiz=["final"]),
        begun(final, number=10**4000), begun(final, seed="s" * 10**6),
        answered(final, first, None, bank={}), answered(final, first, "x", question="no-such"),
        answered(final, first, "x", bank="99"), answered(final, first, {"a": [1]}), answered(final, first, [[]]),
        answered(final, first, 1e308), answered(final, first, True),
        {"v": 1, "at": "", "kind": "reset", "lab": ["final"]}, {"v": 1, "at": "", "kind": "quiz-begin"},
    ]  # fmt: skip
    many = [answered(final, first, f"no answer {number}") for number in range(10_000)]
    found = grade_quizzes([*strange, good[0], *strange, *many, *good[1:], *many, *strange], [final])
    assert found.final.score == 1
    assert found.faults == ("quiz final: attempts at other questions than today's, which are not graded: 1",)


def test_a_thousand_attempts_do_not_hold_the_room_up(final: Paper) -> None:
    events = [event for number in range(1, 3) for event in attempt(final, number, left_out=number)]
    last = attempt(final, 2)
    events += [event | {"number": number} for number in range(3, 1003) for event in last[:2]]
    events += attempt(final, 2000)
    found = grade_quizzes(events, [final])
    assert found.final.score * 15 == 14
    assert found.faults == ("quiz final: 1,003 attempts; only the first 100 are graded",)
