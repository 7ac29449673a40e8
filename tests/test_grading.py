"""A learner hands in one file; an instructor grades a folder of them, and no file spoils the grading of the others."""

import ast
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import state_and_parent, until

from ckptlab.cli.main import run
from ckptlab.course import content, journal, progress
from ckptlab.course.certificate import keys
from ckptlab.course.exercise import read
from ckptlab.course.grading import Graded, grade
from ckptlab.course.grading.cautions import cautions
from ckptlab.course.grading.report import to_csv
from ckptlab.course.grading.result import Outcome
from ckptlab.course.grading.running import run_again
from ckptlab.course.grading.submission import digests, make_header

pytestmark = pytest.mark.timeout(240)  # a room of eleven files is graded once for all tests
EXERCISES = {id_: read(path) for id_, path in content.exercises().items()}
CHEAP = ("4.1", "3.1", "3.3", "5.3")  # one rank, and no training
ORDER = EXERCISES["4.1"]
WRONG = "wrong_name_before_bytes"


def attempt(id_: str, verdict: str, source: str, *, at: int = 0, same_as: str | None = None) -> journal.Event:
    named = {"same_as": same_as} if same_as else {}
    when = f"2026-12-01T18:{at // 60:02}:{at % 60:02}Z"
    return {"v": 1, "at": when, "kind": "exercise", "id": id_, "verdict": verdict, **named, "source": source}


def hand_in(path: Path, *events: journal.Event, **header: object) -> None:
    path.write_bytes(journal.to_lines([make_header("2026-12-01T20:00:00Z", digests()) | header, *events]))


def does(body: str, id_: str = "4.1") -> str:
    """An answer that does something and then gives what the solution gives."""
    exercise = EXERCISES[id_]
    solution = exercise.solution.replace(f"def {exercise.name}(", "def _right(", 1)
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{solution}\n\ndef {exercise.name}(*args):\n{lines}    return _right(*args)\n"


def with_note(id_: str) -> str:
    """The solution as somebody else would have written it."""
    tree = ast.parse(EXERCISES[id_].solution)
    tree.body[0].body.insert(0, ast.parse(f"note = {id_!r}").body[0])
    return ast.unparse(tree)


HOSTILE = {  # an answer, in a file with others that must not mind, and what is told of it
    "cheat_check": (
        "3.1",
        "import sys\n[m for n, m in sys.modules.items() if n.startswith('exercise_')][0].check = lambda *_: iter(())\nreturn 0",
        None,
    ),
    "cheat_equal": ("4.1", "class Yes(list):\n    __eq__ = lambda self, other: True\nreturn Yes()", "found []"),
    "cheat_list": ("4.1", "class L(list): __getitem__ = lambda self, at: []\nreturn L(*args)", "expected"),
    "cheat_tolist": (
        "5.3",
        "class Box: tolist = lambda self: __import__('sys')._getframe(2).f_locals['expected']\nreturn Box()",
        "found <",
    ),
    "exit": ("3.1", "import os; os._exit(0)", "exited with code 0"),
    "file": ("3.3", "with open('f', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", "File too large"),
    "group": ("5.3", "import os; os.kill(0, 9)", "killed by SIGKILL"),
    "loop": ("3.1", "while True: pass", "did not answer within 8 s"),
    "memory": ("3.3", "bytes(1 << 33)", "MemoryError"),
    "parent": ("4.1", "import os, time; os.kill(os.getppid(), 9); time.sleep(9)", "exited"),
    "shared": ("5.3", "import mmap; mmap.mmap(-1, 1 << 33)", "Cannot allocate memory"),
}
FILES = [
    ["cheat_equal", "exit", "file", "group"],
    ["loop", "memory", "shared", "parent"],
    ["cheat_check", "cheat_list", "cheat_tolist"],
]
MARKED = {"cheat_check", "cheat_equal", "cheat_list", "cheat_tolist", "exit", "group", "parent", "shared"}

FORGED = """import gc, time
from multiprocessing.connection import Connection
from ckptlab.ranks.answer import Answer
for pipe in [held for held in gc.get_objects() if isinstance(held, Connection)]: pipe.send(Answer(value={}))
time.sleep(60)"""
HALF_A_MESSAGE = """import os, time
for fd in range(3, 64):
    try:
        if os.readlink(f"/proc/self/fd/{fd}").startswith("socket"): os.write(fd, (9999).to_bytes(4, "big"))
    except OSError: pass
time.sleep(60)"""
PICKLED = """import gc
from multiprocessing.connection import Connection
code = "import os; print(*os.environ, sep=chr(10), file=open(%r, 'w'))"
class Runs:
    __reduce__ = lambda self: (exec, (code,))
for pipe in [held for held in gc.get_objects() if isinstance(held, Connection)]: pipe.send(Runs())"""

STRAY = """import os, subprocess, sys
nameless = "import time; open('/proc/self/comm', 'wb').write(bytes([255])); print(flush=True); time.sleep(300)"
stray = subprocess.Popen([sys.executable, "-c", nameless], start_new_session=True, stdout=subprocess.PIPE)
stray.stdout.readline()
homes = [os.environ[name] for name in ("HOME", "CKPTLAB_HOME", "TMPDIR")]
with open(%r, "w") as file: print(stray.pid, os.environ.get("A_TOKEN"), os.getcwd(), *homes, file=file)
here = os.getcwd()
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
os.chdir(here)"""


def by_name(folder: Path) -> dict[str, Graded]:
    found = grade(folder, EXERCISES, tell=lambda _: None, keep=lambda _: None)
    return {graded.file.removesuffix(".jsonl"): graded for graded in found}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A room's submissions, whose names also give the order in which they are graded."""
    folder = tmp_path_factory.mktemp("room")
    right = [attempt(id_, "right", EXERCISES[id_].solution, at=at) for at, id_ in enumerate(CHEAP)]
    slip = attempt("4.1", "wrong", ORDER.sources[WRONG], at=9, same_as=WRONG)
    many_threads = attempt("2.3", "right", EXERCISES["2.3"].solution, at=10)  # gloo's, which count as memory
    wrong = attempt("5.3", "wrong", "def f(): pass", at=8)
    hand_in(folder / "ada.jsonl", slip, *right[:2], many_threads, wrong)
    hand_in(folder / "copy.jsonl", slip, wrong)
    false = attempt("4.1", "right", ORDER.sources[WRONG], at=20)
    hand_in(folder / "false.jsonl", false, slip | {"at": "2026-12-02T09:00:00Z"}, slip | {"at": "2026-12-02T09:00:01Z"})
    hand_in(folder / "quiet.jsonl", attempt("4.1", "right", does(STRAY % str(folder / "seen")), at=50))
    for number, names in enumerate(FILES):
        bodies = [HOSTILE[name][:2] for name in names]
        answers = [attempt(id_, "right", does(body, id_), at=100 + number) for id_, body in bodies]
        hand_in(folder / f"hostile_{number}.jsonl", *answers)
    forged = attempt("3.1", "right", does(FORGED, "3.1"), at=70)
    pickled = attempt("3.3", "right", does(PICKLED % str(folder / "environment"), "3.3"), at=70)
    half = attempt("4.1", "right", does(HALF_A_MESSAGE), at=70)
    hand_in(folder / "forged.jsonl", forged, pickled, half, attempt("5.3", "right", EXERCISES["5.3"].solution, at=70))
    twin = [attempt(id_, "right", with_note(id_), at=30 + at) for at, id_ in enumerate(CHEAP)]
    twin.append(attempt("3.2", "right", EXERCISES["3.2"].solution, at=40))  # which many will hand in as it is
    hand_in(folder / "twin_a.jsonl", *twin)
    other = [event | {"at": "2026-12-03T18:00:00Z", "source": f"# mine\n{event['source']}  # really"} for event in twin]
    hand_in(folder / "twin_b.jsonl", *other)
    lines = journal.to_lines([right[0] | {"at": "2026-12-01T22:00:00Z"}])
    (folder / "zoe.jsonl").write_bytes(b"\xff\xfe\n{half a li\n" + lines + b'{"v": 1')
    return folder


@pytest.fixture(scope="module")
def graded(folder: Path) -> dict[str, Graded]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("A_TOKEN", "secret")
        patched.setattr("ckptlab.course.exercise.attempt.SECONDS", 8.0)
        patched.setattr("ckptlab.course.grading.running.START_UP_SECONDS", 10.0)
        return by_name(folder)


def test_an_answer_is_right_when_it_is_right_again(graded: dict[str, Graded]) -> None:
    ada, false = graded["ada"], graded["false"]
    assert [ada.outcomes[id_].state for id_ in ("4.1", "3.1", "2.3", "3.3", "5.3")] == [
        "right", "right", "right", "not tried", "tried, not right yet",
    ]  # fmt: skip
    assert (ada.num_right, ada.num_tried, ada.faults) == (3, 4, ())
    assert false.outcomes["4.1"].state == "not right when run again"
    assert ORDER.wrong[WRONG] in false.outcomes["4.1"].text


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_not_right_or_marked_and_only_itself(name: str, graded: dict[str, Graded]) -> None:
    (number,) = [number for number, names in enumerate(FILES) if name in names]
    id_, _, told = HOSTILE[name]
    found = graded[f"hostile_{number}"]
    if told is not None:
        assert found.outcomes[id_].state == "not right when run again", found.outcomes[id_].text
        assert told in found.outcomes[id_].text
        assert "hint(" not in found.outcomes[id_].text
    assert any(mark.startswith(f"{id_}: read this one") for mark in found.marks) == (name in MARKED)


def test_what_a_rank_sends_in_place_of_a_verdict_is_none_and_costs_at_most_its_own_file(
    graded: dict[str, Graded], folder: Path
) -> None:
    found = graded["forged"]
    assert [found.outcomes[id_].state for id_ in CHEAP] == [
        "could not be run", "not right when run again", "not right when run again", "could not be run",
    ]  # fmt: skip
    assert found.outcomes["3.1"].text == "its ranks sent back what is no verdict: read this answer"
    assert found.outcomes["4.1"].text.endswith("read this answer")
    assert [mark[:18] for mark in found.marks] == [f"{id_}: read this one"[:18] for id_ in ("3.1", "3.3", "4.1")]
    assert "A_TOKEN" not in (folder / "environment").read_text().split()


def test_files_after_a_hostile_one_are_graded_and_garbled_ones_as_far_as_they_go(graded: dict[str, Graded]) -> None:
    assert graded["zoe"].outcomes["4.1"].state == "right"
    assert graded["zoe"].faults == (
        "3 lines are no events and are left out",
        "has no header line of 'ckptlab submit', and is read as a journal",
    )


@pytest.mark.skipif(sys.platform != "linux", reason="processes have such names on Linux")
def test_a_process_of_somebody_else_whose_name_is_no_text_stops_no_grading() -> None:
    named = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'\\xff'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", named], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        outcomes = run_again({"4.1": ORDER.solution}, EXERCISES, lambda _: None)
        process.communicate(b"")
    assert outcomes == {"4.1": Outcome("right", "4.1: right.")}


@pytest.mark.usefixtures("graded")
def test_an_answer_gets_no_secrets_and_leaves_nothing_behind(folder: Path) -> None:
    pid, token, *folders = (folder / "seen").read_text().split()
    assert token == "None"
    assert len(set(folders)) == 1
    assert not Path(folders[0]).exists()
    assert until(lambda: state_and_parent(int(pid))[0] == "X", 5)


def test_what_is_the_same_as_in_another_file_is_said_of_both(graded: dict[str, Graded]) -> None:
    assert graded["ada"].marks == ("2 attempts of the journal, with time and source, the same as in copy.jsonl",)
    assert graded["copy"].marks == ("2 attempts of the journal, with time and source, the same as in ada.jsonl",)
    left_out = "(comments and the course's own solutions left out)"
    assert graded["twin_a"].marks == (f"all 4 right answers that both have {left_out} the same as in twin_b.jsonl",)
    assert graded["twin_b"].marks == (f"all 4 right answers that both have {left_out} the same as in twin_a.jsonl",)
    assert graded["false"].marks == graded["zoe"].marks == ()


def test_no_solution_of_the_course_is_marked() -> None:
    assert {id_: found for id_, exercise in EXERCISES.items() if (found := cautions(exercise.solution))} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import gc, os.path", ["gc"]),
        ("from ckptlab.course.exercise import case", ["ckptlab.course.exercise"]),
        ("from os import _exit as leave", ["os._exit"]),
        ("torch.equal = print", ["torch.equal is changed"]),
        ("t = torch.nn\nt.Linear.forward = print", ["t.Linear.forward is changed"]),
        ("from ex04_1_order_of_a_save import solution", ["ex04_1_order_of_a_save"]),
        ("def f(run):\n    run.train = lambda: None", ["run.train is changed"]),
        ("def f(run):\n    run.seed = 1\n    run.model.eval()\n    f.calls = platform.system()", []),
        ("try:\n    pass\nexcept E as e:\n    e.x = 1", []),
        ("().__class__.__base__.__subclasses__()", ["__subclasses__", "__class__"]),
        ("getattr(f, '__globals__')", ["'__globals__'"]),
        ("-" * 90_000 + "1", []),
        ("import gc" + " " * 100_000, []),
    ],
)
def test_what_reaches_out_is_named(source: str, found: list[str]) -> None:
    assert cautions(source) == found


def test_a_file_that_is_odd_costs_only_itself_and_runs_nothing(tmp_path: Path) -> None:
    wrong = attempt("4.1", "wrong", "def order_of_a_save(parts): pass")
    hand_in(tmp_path / "ok.jsonl", wrong)
    (tmp_path / "a_link.jsonl").symlink_to(tmp_path / "ok.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "deep.jsonl").write_bytes(b"[" * 200_000 + b"\n" + b'{"a":' * 200_000 + b"\n")
    (tmp_path / "empty.jsonl").touch()
    with (tmp_path / "huge.jsonl").open("wb") as file:
        file.write(journal.to_lines([wrong]))
        file.truncate(1 << 36)
    odd = [
        wrong | {"id": "../../4.1"}, wrong | {"id": ["4.1"]}, wrong | {"source": None}, wrong | {"verdict": 3},
        wrong | {"same_as": [1]}, {"at": "x", "kind": "reset", "lab": {}}, {"at": "x", "kind": "predict", "id": {}},
    ]  # fmt: skip
    hand_in(tmp_path / "odd.jsonl", *odd, exercises=[1], python={})
    with (tmp_path / "odd.jsonl").open("a") as file:
        file.write('{"at": "x", "kind": "exercise", "id": NaN}\n')
    hand_in(tmp_path / "old.jsonl", wrong, exercises=digests() | {"4.1": "another"})
    hand_in(tmp_path / "new.jsonl", wrong, format=2)
    reset = [{"at": "x", "kind": "reset", "lab": "04"}]
    many = [attempt("4.1", "right", "import os; os.abort()", at=at % 3600) for at in range(10_000)]
    hand_in(tmp_path / "reset.jsonl", *many, *reset)
    (tmp_path / "lines.jsonl").write_bytes(b"{}\n" * 200_001)
    told: list[str] = []
    kept: list[object] = []
    found = {graded.file.removesuffix(".jsonl"): graded for graded in grade(tmp_path, EXERCISES, told.append, kept.append)}
    assert len(told) == len(found) == len(kept) == 12, "no answer is run"
    tried = {name for name, graded in found.items() if graded.outcomes["4.1"].state == "tried, not right yet"}
    assert tried == {"ok", "huge", "odd", "old", "new"}
    assert found["ok"].faults == ()
    for name in ("a_link", "folder", "pipe"):
        assert found[name].faults[0] == "is not read: it is a link, a folder or a pipe"
    assert found["deep"].faults == ("2 lines are no events and are left out", "holds no attempt")
    assert found["huge"].faults[0] == "has 68,719,476,736 bytes; only the first 16,777,216 are read"
    assert "answers unknown exercises: '../../4.1', \"['4.1']\"" in found["odd"].faults
    assert found["lines"].faults[0] == "has more than 200,000 lines; only these are read"
    assert found["old"].faults == ("was made from other versions of the exercises 4.1",)
    assert found["new"].faults[0].startswith("is of format 2, and this program knows 1")


def test_no_cell_of_the_table_is_a_formula(tmp_path: Path) -> None:
    name = '=HYPERLINK("x"),\n.jsonl'
    hand_in(tmp_path / name, attempt("4.1", "wrong", ""))
    hand_in(tmp_path / "b\udcff.jsonl", attempt("4.1", "wrong", "", at=1))
    head, *rows = csv.reader(io.StringIO(to_csv(list(by_name(tmp_path).values())).decode(), newline=""))
    assert head == ["file", *EXERCISES, "right", "tried", "final", "passed", "marks"]
    assert [row[0] for row in rows] == ['\'=HYPERLINK("x"),\\n.jsonl', "b\\udcff.jsonl"]
    assert (rows[0][head.index("4.1")], rows[0][-5:]) == ("tried, not right yet", ["0", "1", "", "no", ""])


def test_the_command_writes_the_table_and_tells_what_the_room_fell_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = next(name for name in ORDER.wrong if name != WRONG)
    slips = [
        attempt("4.1", "wrong", "", at=at, same_as=name) for at, name in enumerate((WRONG, WRONG, WRONG, other, "no_such"))
    ]
    hand_in(tmp_path / "ada.jsonl", *slips)
    hand_in(tmp_path / "ben.jsonl", attempt("4.1", "wrong", "", at=9, same_as=other))
    hand_in(tmp_path / "cid.jsonl", attempt("4.1", "right", "def ("))
    (tmp_path / "thesis.txt").write_text("mine")
    (tmp_path / "results.csv").symlink_to("thesis.txt")
    assert run(["grade", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert [(row["learners"], row["name"]) for row in document["wrong_answers"]] == [(2, other), (1, WRONG)]
    assert document["results"][0]["fell_for"] == {"4.1": [name for name in ORDER.wrong if name in (WRONG, other)]}
    told = ["file 1 of 3: ada.jsonl", "file 2 of 3: ben.jsonl", "file 3 of 3: cid.jsonl", "  cid.jsonl: exercise 4.1"]
    assert err.splitlines()[:4] == told
    assert (tmp_path / "thesis.txt").read_text() == "mine"
    assert (tmp_path / "results.csv").read_text().startswith('"file","0.1",')
    assert run(["grade", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines if line[0].isdigit()][:2] == [["2", "4.1", other], ["1", "4.1", WRONG]]
    assert lines[0].startswith("cid.jsonl: 4.1: not right when run again: it is not Python: invalid syntax")
    assert lines[3].strip() == ORDER.wrong[other]


def test_grading_nothing_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["grade", str(tmp_path / "nowhere")]) == run(["grade", str(tmp_path)]) == 2
    assert "ckptlab submit" in capsys.readouterr().err
    hand_in(tmp_path / "ada.jsonl", attempt("4.1", "wrong", ""))
    (tmp_path / "results.csv").mkdir()
    assert run(["grade", str(tmp_path)]) == 2
    assert "results.csv cannot be written" in capsys.readouterr().err


def test_a_submission_is_the_journal_under_a_header_and_nothing_of_the_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home-of-ada"
    monkeypatch.setenv("CKPTLAB_HOME", str(home))
    file = tmp_path / "ada.jsonl"
    assert run(["submit", str(file)]) == 2
    journal.append_all([attempt("4.1", "wrong", "", at=1)])
    keys.own_key()
    secret = (home / "certificate-key.pem").read_text().splitlines()[1]
    progress.save(tmp_path / "saved")
    progress.load(tmp_path / "saved")  # which takes no key into the journal
    assert run(["submit", str(file)]) == 0
    journal.append("hint", id="4.1", number=1)
    assert run(["submit", str(file)]) == 0  # again, with more
    assert "2 events of your journal: exercise 1, hint 1." in capsys.readouterr().out
    header, *events = map(json.loads, file.read_text().splitlines())
    assert events == journal.read()
    assert set(header) == {"v", "at", "kind", "format", "ckptlab", "python", "exercises"}
    assert not any(word in file.read_text() for word in ("home-of-ada", secret, "PRIVATE", os.uname().nodename))
    (found,) = by_name(tmp_path).values()
    assert (found.outcomes["4.1"].state, found.faults) == ("tried, not right yet", ())


def test_a_key_in_a_journal_that_was_put_there_by_hand_is_not_handed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path / "home"))
    journal.append_all([attempt("4.1", "wrong", "")])
    keys.own_key()
    progress.save(tmp_path / "saved.jsonl")
    (tmp_path / "home" / "journal.jsonl").write_bytes((tmp_path / "saved.jsonl").read_bytes())
    assert run(["submit", str(tmp_path / "ada.jsonl")]) == 0
    assert "PRIVATE" in (tmp_path / "saved.jsonl").read_text()
    assert "PRIVATE" not in (tmp_path / "ada.jsonl").read_text()


def test_a_submission_replaces_only_what_it_was_made_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path))
    journal.append_all([attempt("4.1", "wrong", "", at=1)])
    hand_in(tmp_path / "of_ben.jsonl", attempt("4.1", "wrong", "", at=2))
    (tmp_path / "saved.jsonl").write_bytes(journal.to_lines(journal.read()))
    (tmp_path / "thesis.jsonl").write_text("A thesis.\n")
    (tmp_path / "link.jsonl").symlink_to("thesis.jsonl")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in (*before, "thesis.txt", ".ada.jsonl", "nowhere/ada.jsonl"):
        assert run(["submit", str(tmp_path / name)]) == 2, name
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
