import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from ckptlab.course import journal


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("generous_umask")
def test_events_come_back_in_order_and_the_file_is_the_learners_alone(home: Path) -> None:
    assert journal.read() == []
    assert not home.exists()
    journal.append("hint", id="2.1", number=1)
    journal.append("predict", id="2.p1", value=[1, "ụ"])
    assert [(event["v"], event["kind"], event["id"]) for event in journal.read()] == [
        (1, "hint", "2.1"),
        (1, "predict", "2.p1"),
    ]
    assert (mode(home), mode(journal.journal_file())) == (0o700, 0o600)
    assert "ụ" in journal.journal_file().read_text()


def test_it_lies_in_the_users_data_folder_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CKPTLAB_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert journal.journal_file() == tmp_path / "data/ckptlab/journal.jsonl"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert journal.journal_file() == Path.home() / ".local/share/ckptlab/journal.jsonl"


def test_several_processes_append_at_once_and_no_line_is_lost_or_mixed(home: Path) -> None:
    code = "from ckptlab.course import journal\nfor n in range(50): journal.append('hint', id='x' * 5000, who={}, number=n)"
    writers = [subprocess.Popen([sys.executable, "-c", code.format(who)]) for who in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    events = journal.read()
    assert [[event["number"] for event in events if event["who"] == who] for who in range(3)] == [list(range(50))] * 3


def add(number: int) -> None:
    journal.append("hint", id="2.1", number=number)


@pytest.mark.parametrize("work", [lambda: add(2), journal.read], ids=["append", "read"])
def test_who_has_the_journal_open_has_it_alone(work: Callable[[], object]) -> None:
    add(1)
    other = threading.Thread(target=work)
    with journal.journal_file().open("rb") as file:
        flock(file, LOCK_EX)
        other.start()
        other.join(1)
        assert other.is_alive()
        assert file.read().count(b"\n") == 1
    other.join(30)
    assert not other.is_alive()


@pytest.mark.usefixtures("generous_umask")
def test_a_damaged_line_costs_only_itself_and_the_learner_is_told(home: Path) -> None:
    journal.append("hint", id="2.1", number=1)
    with journal.journal_file().open("ab") as file:
        file.write(b'{"v":1,"at":"2026-12-01T18:31:02Z","kind":"hi\xff\n[1]\n{"kind":"hint","at":"x","number":NaN}\n{"v":1,"ki')
    before = journal.journal_file().read_bytes()
    journal.append("hint", id="2.1", number=2)  # after a line that a crash cut short
    told: list[str] = []
    assert [event["number"] for event in journal.read(told.append)] == [1, 2]
    assert len(told) == 1
    assert told[0].startswith("4 damaged lines")
    (aside,) = home.glob("journal-*.damaged")
    assert aside.read_bytes().startswith(before)
    assert mode(aside) == 0o600
    assert [event["number"] for event in journal.read(pytest.fail)] == [1, 2]
    assert len(journal.journal_file().read_bytes().splitlines()) == 2


def test_a_crash_while_damaged_lines_are_put_aside_costs_no_event(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = ("write", "pwrite", "fsync", "ftruncate")
    for num_calls in range(20):
        for number in range(3):
            add(number)
        whole = journal.journal_file().read_bytes()
        damaged = b"damaged\n" + whole
        journal.journal_file().write_bytes(damaged)
        left = [num_calls]
        with monkeypatch.context() as patched:
            for name in calls:
                patched.setattr(os, name, crash_after(left, getattr(os, name)))
            try:
                journal.read()
            except SystemError:
                pass
            else:
                break
        assert damaged in [file.read_bytes() for file in home.iterdir()], f"a crash after {num_calls} calls"
        assert {event["number"] for event in journal.read()} == {0, 1, 2}, f"a crash after {num_calls} calls"
        shutil.rmtree(home)
    assert num_calls > 2
    assert journal.journal_file().read_bytes() == whole


def crash_after(left: list[int], call: Callable[..., object]) -> Callable[..., object]:
    def crash_or_call(*args: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise SystemError
        return call(*args)

    return crash_or_call


def test_on_a_full_disk_an_event_is_there_as_a_whole_or_not_at_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.append("hint", id="2.1", number=1)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
    with pytest.raises(OSError, match="No space left"):
        journal.append("hint", id="2.1", number=2)
    monkeypatch.undo()
    monkeypatch.setenv("CKPTLAB_HOME", str(home))
    assert [json.loads(line)["number"] for line in journal.journal_file().read_text().splitlines()] == [1]
