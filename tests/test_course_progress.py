import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from ckptlab.cli.main import run
from ckptlab.course import content, hint, journal, outcome, predict, progress, recheck, reset, solution
from ckptlab.course.certificate import keys
from ckptlab.course.exercise import read
from ckptlab.course.progress.fold import fold
from ckptlab.errors import UsageError

ROWS = read(content.exercise_file("2.1"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path / "home"))
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    return tmp_path / "home"


def event(kind: str, at: int, **members: object) -> journal.Event:
    return {"v": 1, "at": f"2026-12-01T18:31:{at:02}Z", "kind": kind, **members}


def attempt(at: int, verdict: str, source: str = "", id_: str = "2.1") -> journal.Event:
    return event("exercise", at, id=id_, verdict=verdict, source=source)


def test_the_best_attempt_counts_and_a_reset_forgets_its_lab_only() -> None:
    events = [
        attempt(1, "right", "first"),
        attempt(2, "wrong"),
        attempt(3, "right", "newest"),
        attempt(4, "right, but", id_="3.1"),
    ]
    tried = fold(events).tried("2.1")
    assert (tried.state, tried.source, tried.num_attempts) == ("right", "newest", 3)
    after = fold([*events, event("reset", 5, lab="02")])
    assert (after.tried("2.1").state, after.tried("3.1").state) == ("untried", "right, but")


def test_what_is_loaded_after_a_reset_counts_whatever_its_time() -> None:
    assert fold([event("reset", 5, lab="02"), attempt(3, "right")]).tried("2.1").state == "right"


def test_what_is_not_well_formed_counts_for_nothing() -> None:
    strange = [attempt(1, "perfect"), event("exercise", 1, id=["2.1"]), event("exercise", 1, id="2.1", verdict="right")]
    assert fold([*strange, event("reset", 1, lab=[2]), event("quiz", 1)]).exercises.get("2.1") in (None, fold([]).tried("2.1"))


def test_hints_come_one_by_one_and_the_solution_after_an_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(4):
        hint("2.1")
    numbers = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert numbers == ["hint 1 of 3", "hint 2 of 3", "hint 3 of 3", "hint 3 of 3"]
    with pytest.raises(UsageError, match="after an attempt"):
        solution("2.1")
    journal.append_all([attempt(1, "wrong")])
    solution("2.1")
    assert capsys.readouterr().out == f"{ROWS.solution}\n"


def test_a_prediction_is_shown_beside_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    predict("2.p1", ...)
    outcome("2.p1", 4)
    predict("2.p1", 3)
    outcome("2.p1", 4)
    predict("2.p1", (0, 4))
    outcome("2.p1", np.array([0, 4]))
    predict("2.p1", float("nan"))
    assert capsys.readouterr().out.splitlines() == [
        "2.p1: not predicted yet.",
        "2.p1: no prediction; it is 4.",
        "2.p1: you predict 3.",
        "2.p1: you predicted 3; it is 4.",
        "2.p1: you predict (0, 4).",
        "2.p1: as you predicted: [0, 4].",
        "2.p1: you predict nan.",
    ]


def test_progress_goes_along_in_a_file_and_nothing_is_taken_twice(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal.append_all([attempt(1, "right"), attempt(2, "wrong")])
    progress.save()
    (home / "journal.jsonl").unlink()
    with pytest.raises(UsageError, match=r"holds progress that your journal does not"):
        progress.save()
    journal.append_all([attempt(3, "right", id_="3.1")])
    progress.load()
    progress.load("progress.jsonl")
    assert [line["at"][-3:-1] for line in map(dict, journal.read())] == ["03", "01", "02"]
    progress.save()
    assert len(Path("progress.jsonl").read_text().splitlines()) == 3
    assert (
        "2 events of progress.jsonl are new and are in your journal now.\n"
        "recheck(), the final and certificate() run the 1 answer in it; load only files that you saved.\n"
        "0 events of progress.jsonl are new and are in your journal now.\n"
    ) in capsys.readouterr().out
    with pytest.raises(UsageError, match="no file other"):
        progress.load("other.jsonl")


def test_a_save_loses_nothing_that_is_no_progress() -> None:
    journal.append_all([attempt(1, "right")])
    thesis = Path("thesis.txt")
    saved = journal.to_lines(journal.read())
    for text in (b"A thesis.\n", b"\x00", saved + b"and a remark", saved[:-9]):
        thesis.write_bytes(text)
        with pytest.raises(UsageError, match=r"thesis\.txt has 1 lines that are no progress, and is left as it is"):
            progress.save("thesis.txt")
        assert thesis.read_bytes() == text
    assert os.listdir() == ["thesis.txt"]


def test_a_save_that_breaks_off_leaves_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    journal.append_all([attempt(1, "right")])
    before = os.umask(0)
    progress.save()
    os.umask(before)
    assert Path("progress.jsonl").stat().st_mode & 0o777 == 0o600
    earlier = Path("progress.jsonl").read_bytes()
    journal.append_all([attempt(2, "right")])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        progress.save()
    assert (os.listdir(), Path("progress.jsonl").read_bytes()) == (["progress.jsonl"], earlier)


def test_a_long_journal_is_loaded_in_no_time() -> None:
    events = [attempt(1, "wrong", source=f"{number} {'x' * 500}") for number in range(6000)]
    Path("long.jsonl").write_bytes(journal.to_lines(events * 2))
    journal.append_all(events[:3000])
    begin = time.process_time()
    progress.load("long.jsonl")
    assert time.process_time() - begin < 2
    assert journal.read() == events


def test_the_table_counts_by_lab_in_text_and_html() -> None:
    journal.append_all([attempt(1, "right"), attempt(2, "right, but", id_="2.2"), attempt(3, "wrong", id_="2.3")])
    predict("2.p1", 1)
    table = progress()
    (row,) = (row for row in table.rows if row.lab == "02 shards")
    assert (row.right, row.over_budget, row.tried, row.exercises, row.predictions) == (2, 1, 3, 3, 1)
    assert {row.lab: row.predictions for row in table.rows if row.predictions} == {"02 shards": 1}
    assert repr(table).splitlines()[0].split() == ["lab", "right", "over", "budget", "tried", "exercises", "predictions"]
    assert '<th scope="row">02 shards</th><td>2</td><td>1</td>' in table._repr_html_()


def test_a_recheck_runs_every_right_answer_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    journal.append_all([attempt(1, "right", ROWS.sources["wrong_spread_like_numpy"])])  # the check was mended since
    recheck()
    assert capsys.readouterr().out.startswith("2.1: not yet. 7 rows over 3 ranks")
    assert len(journal.read()) == 1


def test_a_lab_is_reset_by_its_two_digits() -> None:
    journal.append_all([attempt(1, "right")])
    with pytest.raises(UsageError, match="as in reset"):
        reset("2")
    reset("02")
    assert fold(journal.read()).tried("2.1").state == "untried"


def test_the_command_line_shows_saves_and_loads(capsys: pytest.CaptureFixture[str]) -> None:
    journal.append_all([attempt(1, "right")])
    assert run(["progress", "--json"]) == 0
    assert {row["lab"]: row["right"] for row in json.loads(capsys.readouterr().out)}["02 shards"] == 1
    assert run(["progress", "save", "mine.jsonl"]) == 0
    assert run(["progress", "load", "mine.jsonl"]) == 0
    assert run(["progress"]) == 0
    assert "02 shards" in capsys.readouterr().out
    assert run(["progress", "load"]) == run(["progress", "load", "nothing.jsonl"]) == 2


def test_the_key_of_certificates_goes_along_and_never_takes_the_place_of_another(home: Path, capsys) -> None:
    journal.append_all([attempt(1, "right")])
    own = keys.did_of(keys.own_key())
    file = home / "certificate-key.pem"
    progress.save()
    progress.save()
    assert "keep it to yourself" in capsys.readouterr().out
    file.unlink()
    with pytest.raises(UsageError, match=r"progress\.load\(.*takes it in"):
        progress.save()
    progress.load()
    assert "The key of your certificates is there again." in capsys.readouterr().out
    assert (keys.did_of(keys.own_key()), file.stat().st_mode & 0o777) == (own, 0o600)
    assert len(journal.read()) == 1
    file.unlink()
    other = keys.did_of(keys.own_key())
    progress.load()
    assert "another key of certificates than yours, which stays" in capsys.readouterr().out
    assert keys.did_of(keys.own_key()) == other
    with pytest.raises(UsageError, match="holds progress that your journal does not"):
        progress.save()  # it would lose the key in the file


RSA = "-----BEGIN PRIVATE KEY-----\nMIIBVQIBADANBgkqhkiG9w0BAQEFAASCAT8wggE7AgEAAkEA\n-----END PRIVATE KEY-----\n"


def test_a_saved_key_that_is_none_is_not_taken(home: Path) -> None:
    strange = [
        event("certificate-key", 1, pem=pem) for pem in (None, 5, "x", "-----BEGIN PRIVATE KEY-----" + "x" * 10_000, RSA)
    ]
    Path("strange.jsonl").write_bytes(journal.to_lines([*strange, event("certificate-key", 1), attempt(1, "wrong")]))
    progress.load("strange.jsonl")
    assert [file.name for file in home.iterdir()] == ["journal.jsonl"]
