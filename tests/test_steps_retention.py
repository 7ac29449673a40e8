import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from steps_made_by_hand import make_step

from ckptlab.checkpoint import Contents, save
from ckptlab.errors import UsageError
from ckptlab.resume import Checkpointer
from ckptlab.steps.events import append_event, read_events
from ckptlab.steps.housekeeping import clean_temporary, list_asides, set_aside
from ckptlab.steps.retention import retire
from ckptlab.steps.steps import list_steps


def names(run: Path) -> list[str]:
    return sorted(name for name in os.listdir(run) if "step-" in name)


def test_the_newest_whole_steps_stay_and_what_is_not_whole_neither_counts_nor_goes(tmp_path: Path) -> None:
    for number in (10, 20, 30, 40, 50):
        make_step(tmp_path, number)
    for torn in (20, 50):
        (tmp_path / f"step-{torn:08d}" / "state.json").unlink()
    assert retire(tmp_path, keep_last=2, keep_every=None, just_saved=50) == [10]
    assert names(tmp_path) == ["step-00000020", "step-00000030", "step-00000040", "step-00000050"]
    assert retire(tmp_path, keep_last=1, keep_every=None, just_saved=50) == [30]
    assert retire(tmp_path, keep_last=1, keep_every=None, just_saved=50) == []


def test_a_pinned_step_stays(tmp_path: Path) -> None:
    for number in (10, 20, 30):
        make_step(tmp_path, number)
    (tmp_path / "step-00000010" / "pinned").touch()
    assert retire(tmp_path, keep_last=1, keep_every=None, just_saved=50) == [20]
    assert names(tmp_path) == ["step-00000010", "step-00000030"]


def test_every_so_many_steps_one_stays_for_good(tmp_path: Path) -> None:
    for number in (10, 20, 30, 40, 50, 60):
        make_step(tmp_path, number)
    assert retire(tmp_path, keep_last=2, keep_every=20, just_saved=60) == [10, 30]
    assert names(tmp_path) == ["step-00000020", "step-00000040", "step-00000050", "step-00000060"]


@pytest.mark.parametrize("rule", [{"keep_last": 0}, {"keep_last": 2, "keep_every": 0}])
def test_nothing_can_ask_for_the_newest_whole_step_to_go(tmp_path: Path, rule: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"keep_.*=0.*at least 1"):
        save(tmp_path, 20, Contents(model={}), **rule)
    with pytest.raises(UsageError, match=r"keep_.*=0.*at least 1"):
        Checkpointer(tmp_path, **rule)


def test_a_deletion_that_is_killed_leaves_trash_and_never_half_a_step(tmp_path: Path) -> None:
    for number in (10, 20):
        make_step(tmp_path, number)
    code = """if True:
        import os, sys
        from pathlib import Path
        from ckptlab.steps.retention import retire
        def die_in_the_middle(event, arguments):
            if event == "os.remove" and not str(arguments[0]).startswith("/"):
                os._exit(9)
        sys.addaudithook(die_in_the_middle)
        retire(Path(sys.argv[1]), keep_last=1, keep_every=None, just_saved=50)
    """
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == 9
    (trash,) = list_asides(tmp_path)
    assert trash.startswith(".trash-step-00000010-")
    assert [step.number for step in list_steps(tmp_path)] == [20]
    assert clean_temporary(tmp_path) == [trash]
    assert names(tmp_path) == ["step-00000020"]


def test_cleaning_removes_torn_steps_and_trash_but_keeps_bad_ones(tmp_path: Path) -> None:
    for name in (".tmp-step-00000070-ab", ".trash-step-00000060-ab", ".bad-step-00000050-ab", "step-00000040", "records"):
        (tmp_path / name / "model").mkdir(parents=True)
    assert list_asides(tmp_path) == {
        ".bad-step-00000050-ab": "bad",
        ".tmp-step-00000070-ab": "torn",
        ".trash-step-00000060-ab": "trash",
    }
    assert clean_temporary(tmp_path) == [".tmp-step-00000070-ab", ".trash-step-00000060-ab"]
    assert sorted(os.listdir(tmp_path)) == [".bad-step-00000050-ab", "records", "step-00000040"]


def test_a_step_set_aside_is_no_step_and_can_be_saved_and_set_aside_again(tmp_path: Path) -> None:
    aside = [set_aside(make_step(tmp_path, 40), "bad") for _ in range(2)]
    assert list_steps(tmp_path) == []
    assert aside[0] != aside[1]
    assert set(list_asides(tmp_path)) == {path.name for path in aside}


def test_a_deletion_is_told_in_the_events_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    append_event(tmp_path, {"event": "save", "step": 20, "outcome": "committed"})
    for number in (10, 20):
        make_step(tmp_path, number)
    retire(tmp_path, keep_last=1, keep_every=None, just_saved=50)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    deleted = json.loads(lines[1])
    assert (deleted["v"], deleted["event"], deleted["step"], deleted["rule"]) == (1, "delete", 10, "keep_last=1")
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"v":1,"event":"sa')
    assert [event["event"] for event in read_events(tmp_path)] == ["save", "delete"]
    assert read_events(tmp_path / "nowhere") == []
