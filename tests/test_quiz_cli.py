"""The quiz at the command line, taken by typing, stopped and taken up again; and the banks as they are, checked."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkouts import check_out
from small_bank import TEXT, put_course

from ckptlab.cli.main import run
from ckptlab.course import journal
from ckptlab.course.content import exercise_file
from ckptlab.course.exercise import read as read_exercise
from ckptlab.course.quiz import gift
from ckptlab.course.quiz.bank import read
from ckptlab.course.quiz.proof import faults
from ckptlab.course.quiz.survey import survey

EXERCISE = TEXT.index("  - id: rows-of-a-rank")


class Terminal:
    """The command in a course with one small bank; each call types lines and returns what is printed."""

    def __init__(self, folder: Path, text: str) -> None:
        put_course(folder, text)
        self.folder = folder
        self.environment = check_out(folder) | {"CKPTLAB_HOME": str(folder / "journal")}

    def __call__(self, *arguments: str, typed: str = "", code: int = 0) -> str:
        command = [sys.executable, "-c", "from ckptlab.cli.main import main; main()", "quiz", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, input=typed, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, TEXT[:EXERCISE])


def letters(shown: str, *wanted: str) -> str:
    """Return the letters before these texts."""
    return " ".join(re.search(rf"^\s+(\w)\. {re.escape(text)}$", shown, re.MULTILINE)[1] for text in wanted)


def test_a_quiz_is_taken_and_when_it_was_stopped_taken_up_again(terminal: Terminal) -> None:
    shown = terminal("take", "02", code=130)
    assert "Question 1 of 6, 0 right" in shown
    assert "Kept. Go on with: ckptlab quiz take 02" in shown
    right = "2" if "11 rows" in shown else "1"
    shown = terminal("take", "02", typed=f"Z\n{letters(shown, right)}\n", code=130)
    assert "You go on where you stopped." in shown
    assert "Not an answer yet: the letters are A, B, C." in shown
    assert "Right.\n  `torch.chunk` rounds the length up.\n  More on it: lab 02, “Boxes”." in shown
    shown = terminal("take", "02", code=130)
    assert "Question 2 of 6, 1 right" in shown
    both = letters(shown, "Rank 0 writes all of it.", "Each rank writes its own quarter.")
    shown = terminal("take", "02", typed=f"{both}\n10,5\nreplicate\n", code=130)
    assert "Question 5 of 6" in shown
    order = [
        re.search(rf"^\s+(\d)\. {item}$", shown, re.MULTILINE)[1] for item in ("write", "sync", "rename", "sync the parent")
    ]
    shown = terminal("take", "02", typed=f"{' '.join(order)}\n", code=130)
    one, eight = (letters(shown, text) for text in "18")
    shown = terminal("take", "02", typed=f"1{one} 2{eight} 3{one}\n")
    assert re.search(r"All 6 questions are answered: [56] of 6 points", shown)
    shown = terminal("show")
    assert re.search(r"^02 +Shards +6 +1 +[56]/6$", shown, re.MULTILINE)


def test_what_was_reached_is_shown_to_a_program_too(terminal: Terminal) -> None:
    terminal("take", "02", code=130)
    shown = json.loads(terminal("show", "--json"))
    assert shown["quizzes"][0] == {"quiz": "02", "title": "Shards", "questions": 6, "attempts": 1, "best": "-"}
    assert "3.1" in shown["exercises_missing"]


def test_an_exercise_is_run_again_from_the_journal_or_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, _, _ = TEXT.partition("  - id: last-rank")
    terminal = Terminal(tmp_path, head + TEXT[EXERCISE:])
    monkeypatch.setenv("CKPTLAB_HOME", terminal.environment["CKPTLAB_HOME"])
    exercise = read_exercise(exercise_file("2.1"))
    lie = {"id": "2.1", "verdict": "right", "source": exercise.sources["wrong_spread_like_numpy"]}
    journal.append("exercise", **lie)
    assert "Not an answer yet: exercise 2.1 is not right yet in your journal." in terminal("take", "02", typed="\n", code=130)
    journal.append("exercise", **lie | {"source": exercise.solution})
    assert "100 %" in terminal("take", "02", typed="\n")
    assert "You left exercise 2.1 out." in terminal("take", "02", typed="-\n")


def test_no_such_quiz_is_bad_usage(terminal: Terminal) -> None:
    assert "there is no quiz '99'; there are 02, final" in terminal("take", "99", code=2)
    assert "error: there is no bank 'final'" in terminal("export", "final", "a.gift", code=2)


def test_an_export_never_takes_the_place_of_another_file(terminal: Terminal) -> None:
    terminal("export", "02", "02.gift")
    written = (terminal.folder / "02.gift").read_text()
    assert "02.gift is there already" in terminal("export", "02", "02.gift", code=2)
    assert (terminal.folder / "02.gift").read_text() == written != ""


def test_checking_finds_a_key_that_its_proof_does_not(tmp_path: Path) -> None:
    text = TEXT.replace("rows: 11, ranks: 4, chunk: 2,", "rows: 11, ranks: 4, chunk: 6,").replace('right: "8"', 'right: "6"')
    terminal = Terminal(
        tmp_path, text.replace("gigabytes = billions", "mistake = billions").replace("gigabytes: 9.75", "gigabytes: 9.8")
    )
    told = terminal("check", code=1)
    assert "wrong: 02.last-rank, variant 2: chunk is 6 in the bank; the proof finds 2" in told
    assert "wrong: 02.runs, variant 1: pairs is ['1', '6', '1'] in the bank; the proof finds ['1', '8']" in told
    assert "wrong: 02.bytes-per-rank, variant 1: the proof sets nothing that makes the key" in told
    assert "02.last-rank, variant 1" not in told


@pytest.mark.parametrize("proof", ["import os; os._exit(3)", "1 / 0", "right = (", "while True: pass"])
def test_a_proof_that_does_not_end_well_is_a_fault(tmp_path: Path, proof: str) -> None:
    path = tmp_path / "02.yaml"
    head, _, _ = TEXT.partition("  - id: replicas")
    path.write_text(head.replace("import torch\n", f"{proof}\n"))
    assert len(list(faults(read(path), seconds=3))) == 2


@pytest.mark.timeout(300)
def test_the_banks_are_as_they_should_be_and_every_proof_finds_their_keys(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["quiz", "check"])
    assert code == 0, capsys.readouterr().out


def test_options_whose_length_tells_the_key_are_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "02.yaml"
    path.write_text(TEXT.replace('text: "{chunk}"', 'text: "{chunk}, as torch.chunk deals them out"'))
    assert "the longest option is right in 100% of the single questions; at most 40%" in survey([path]).faults


def test_an_export_has_every_variant_with_its_key_and_feedback_and_escapes_what_gift_would_obey(tmp_path: Path) -> None:
    path = tmp_path / "02.yaml"
    path.write_text(TEXT.replace("ask: Put the steps of a save in order.", 'ask: "Order {{a=b}}: ~#\\\\\\n\\nthe steps"'))
    text, num_questions = gift.export(read(path))
    entries = re.split(r"\n\n+", text.strip())[1:]
    assert num_questions == len(entries) == 8
    assert entries[0].startswith("::02.last-rank, variant 1::[markdown]A tensor has 13 rows under `Shard(0)` on 4 ranks.")
    assert "\t=1#`torch.chunk` rounds the length up.\n\t~3#That is an even split" in entries[0]
    assert "\t~%50%Rank 0 writes all of it.#Every byte is written once.\n" in entries[2]
    assert "\t~%-50%Nobody writes it." in entries[2]
    assert "\t=10.5:0.21#12 bytes a parameter, divided by the ranks.\n\t=%0%3.5:0.07#Only the weights." in entries[3]
    assert "[markdown]Order \\{\\{a\\=b\\}\\}\\: \\~\\#\\\\\\n\\nthe steps {\n\t=1 -> write\n" in entries[6]
    assert "\t=`Shard(1)` -> 8\n" in entries[7]
