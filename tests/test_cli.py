import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from steps_made_by_hand import MODEL, make_step

from ckptlab.cli.main import run
from ckptlab.format.manifest import Manifest
from ckptlab.format.records import FileRecord
from ckptlab.steps import newest_step

MODEL_FILE = "model/model-00001-of-00001.safetensors"
CKPTLAB = [sys.executable, "-c", "from ckptlab.cli.main import main; main()"]


@pytest.fixture
def demo_run(tmp_path: Path) -> Path:
    """A run of steps 20 and 40, with what a killed save left."""
    make_step(tmp_path, 20)
    make_step(tmp_path, 40, aliases={"head.weight": "norm.weight"}, cut_dim=0)
    (tmp_path / ".tmp-step-00000060-ab12").mkdir()
    return tmp_path


def test_ls_lists_steps_with_bytes_ranks_and_fault_and_names_what_is_no_step(demo_run: Path, capsys) -> None:
    (demo_run / "step-00000040" / "state.json").unlink()
    assert run(["ls", str(demo_run)]) == 0
    lines = [line.split(maxsplit=4) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["step", "bytes", "ranks", "state"]
    assert (lines[1][0], lines[1][3:]) == ("20", ["2", "whole"])
    assert (lines[2][0], lines[2][3:]) == ("40", ["2", "not whole: state.json: missing, or not a regular file"])
    assert lines[3][:2] == [".tmp-step-00000060-ab12", "torn:"]
    assert run(["ls", str(demo_run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(step["step"], step["ranks"], step["whole"]) for step in document["steps"]] == [(20, 2, True), (40, 2, False)]
    assert document["asides"] == {".tmp-step-00000060-ab12": "torn"}


def test_show_tells_tensors_pieces_files_aliases_and_who_saved(demo_run: Path, capsys) -> None:
    assert run(["show", str(demo_run / "step-00000040")]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [" ".join(line.split()) for line in lines]
    assert "proj.weight F32 [12, 8] 2 pieces pieces/model-0.safetensors to pieces/model-1.safetensors" in rows
    assert "step::proj.weight F32 [] 1 piece pieces/optim-0.safetensors" in rows
    assert {"head.weight norm.weight", "world_size 2"} <= set(rows)
    assert run(["show", str(demo_run / "step-00000040"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["manifest"] == json.loads((demo_run / "step-00000040" / "manifest.json").read_text())


def test_show_of_one_tensor_tells_where_its_bytes_are(demo_run: Path, capsys) -> None:
    path = demo_run / "step-00000040"
    assert run(["show", str(path), "proj.weight", "--json"]) == 0
    piece = json.loads(capsys.readouterr().out)["model"]["proj.weight"]["pieces"][1]
    data = (path / piece["file"]).read_bytes()[piece["begin"] :][: 6 * 8 * 4]
    assert data == MODEL["proj.weight"][6:].tobytes()
    assert run(["show", str(path), "proj.weight"]) == 0
    assert ["[6:12,", "0:8]", piece["file"], f"{piece['begin']}-{piece['begin'] + 192}"] in [
        line.split()[:4] for line in capsys.readouterr().out.splitlines()
    ]
    assert run(["show", str(path), "head.weight"]) == 0
    assert "model norm.weight: F32 [8], 32 bytes" in capsys.readouterr().out
    assert run(["show", str(path), "proj.wieght"]) == 2
    assert "did you mean proj.weight" in capsys.readouterr().err


def test_verify_is_0_for_a_good_run_and_1_with_file_bytes_and_tensors_for_a_bad_one(demo_run: Path, capsys) -> None:
    assert run(["verify", str(demo_run)]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["step 20", "step 40"]
    file = demo_run / "step-00000020" / MODEL_FILE
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    begin = (len(data) - 1) // 128 * 128
    assert run(["verify", str(demo_run)]) == 1
    assert f"step 20: {MODEL_FILE} bytes {begin}-{len(data)}: crc32" in capsys.readouterr().out
    assert run(["verify", str(demo_run / "step-00000040")]) == 0
    capsys.readouterr()
    assert run(["verify", str(demo_run), "--json"]) == 1
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [(fault["file"], fault["begin"], fault["tensors"]) for fault in steps[0]["faults"]] == [
        (MODEL_FILE, begin, ["proj.weight"])
    ]
    assert steps[1]["faults"] == []


def test_a_step_that_is_not_whole_is_wrong_for_show_and_verify(demo_run: Path, capsys) -> None:
    step = demo_run / "step-00000040"
    (step / "state.json").unlink()
    assert run(["show", str(step)]) == 1
    assert capsys.readouterr().out.startswith("step 40: not whole: state.json: missing")
    (step / "manifest.json").unlink()
    assert run(["verify", str(demo_run)]) == 1
    assert "step 40: manifest.json: no manifest.json: written, but not committed" in capsys.readouterr().out
    assert run(["show", str(step)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ls", "nowhere"], "nowhere is not a directory; name the directory of a run"),
        (["ls", "empty"], "empty is neither a run nor a step: expected directories like step-00000040, found nothing"),
        (["ls", "notes.txt"], "notes.txt is not a directory"),
        (["show", "step-00000041"], "step-00000041 is not there; steps in"),
        (["show", "."], "steps in"),
        (["show", "nowhere/step-00000001"], "nowhere is not a directory"),
        (["verify", "empty"], "empty is neither a run nor a step"),
        (["verify"], "Missing argument 'STEP|RUN'"),
        (["verify", "--jsn", "."], "No such option '--jsn'"),
        (["vreify", "."], "No such command 'vreify'"),
    ],
)
def test_bad_usage_is_one_line_on_stderr_and_2(demo_run: Path, capsys, monkeypatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(demo_run)
    (demo_run / "empty").mkdir()
    (demo_run / "notes.txt").touch()
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("error: ")) == ("", 1, True)
    assert message in err


def test_a_traceback_is_shown_only_on_request(demo_run: Path, capsys) -> None:
    assert run(["ls", str(demo_run / "nowhere"), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_what_a_checkpoint_names_never_reaches_the_terminal_as_a_command(tmp_path: Path, capsys) -> None:
    path = make_step(tmp_path, 40, model={"w\x1b[2J\nerror: x": np.zeros(1, "f4")}, optim={})
    assert run(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert r"w\x1b[2J\nerror: x" in out


def test_doctor_looks_at_the_machine_and_is_1_only_where_something_needed_is_missing(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run(["doctor", "--json"])
    findings = {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert {
        "platform",
        "python",
        "torch",
        "processors",
        "memory",
        "disk",
        "fsync",
        "loopback",
        "make",
        "git",
        "cuda",
    } <= findings.keys()
    assert code == any(finding["state"] == "missing" for finding in findings.values())
    assert all(finding["advice"] for finding in findings.values() if finding["state"] != "ok")
    assert findings["python"]["found"] == ".".join(map(str, sys.version_info[:3]))
    monkeypatch.setenv("PATH", str(tmp_path))
    run(["doctor"])
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "make note not found install make: it starts the course: make lab" in rows


@pytest.mark.parametrize("command", ["--help", "ls", "show", "verify", "doctor"])
def test_no_command_that_only_reads_loads_torch(demo_run: Path, command: str) -> None:
    path = {"ls": [demo_run], "verify": [demo_run], "show": [demo_run / "step-00000040"]}.get(command, [])
    code = "import sys; from ckptlab.cli.main import run; run(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, command, *path], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    path = make_step(tmp_path, 40, model={f"layer.{i}": np.zeros(1, "f4") for i in range(2000)}, optim={})
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen([*CKPTLAB, "show", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.wait(), process.stderr.read()) == (141, b"")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_interrupt_ends_the_command_quietly_with_130(tmp_path: Path) -> None:
    path = make_step(tmp_path, 40, block_bytes=1 << 26)
    large = path / "model" / "large"  # a hole of 64 GiB takes a while to sum
    manifest = Manifest.parse((path / "manifest.json").read_bytes())
    files = {**manifest.files, "model/large": FileRecord(1 << 36, (0,) * (1 << 10))}
    (path / "manifest.json").write_bytes(replace(manifest, files=files).to_json())
    large.touch()
    os.truncate(large, 1 << 36)
    with subprocess.Popen([*CKPTLAB, "verify", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            while str(large) not in map(os.path.realpath, Path(f"/proc/{process.pid}/fd").iterdir()):
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        finally:
            process.kill()
    assert (process.returncode, out, err.strip()) == (130, b"", b"")


def test_diff_names_what_differs_and_exits_with_1(tmp_path: Path, capsys) -> None:
    changed = {**MODEL, "norm.weight": MODEL["norm.weight"] + 1}
    first, same = make_step(tmp_path / "a", 20), make_step(tmp_path / "b", 20, cut_dim=0)
    other = make_step(tmp_path / "c", 20, model=changed)
    assert run(["diff", str(first), str(same)]) == 0
    assert capsys.readouterr().out == "identical, bit for bit\n"
    assert run(["diff", str(first), str(other)]) == 1
    assert capsys.readouterr().out.startswith("model norm.weight: first at [0]: ")
    assert run(["diff", str(first), str(other), "--json"]) == 1
    (difference,) = json.loads(capsys.readouterr().out)["differences"]
    assert (difference["section"], difference["name"]) == ("model", "norm.weight")
    assert run(["diff", str(first), str(tmp_path / "c" / "step-00000021")]) == 2


def test_rollback_makes_an_earlier_step_the_newest_and_deletes_nothing(demo_run: Path, capsys) -> None:
    assert run(["rollback", str(demo_run), "30"]) == 2
    assert "step-00000030 is not there" in capsys.readouterr().err
    before = sorted(path.read_bytes() for path in (demo_run / "step-00000040").rglob("*") if path.is_file())
    assert run(["rollback", str(demo_run), "20"]) == 0
    assert "the next resume takes step 20; what was trained after it, up to step 40" in capsys.readouterr().out
    newest = newest_step(demo_run)
    assert newest is not None
    assert newest.number == 20
    (aside,) = demo_run.glob(".bad-step-00000040-*")
    assert sorted(path.read_bytes() for path in aside.rglob("*") if path.is_file()) == before
    assert run(["rollback", str(demo_run), "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"step": 20, "set_aside": {}}


def test_rollback_refuses_a_step_that_is_not_whole(demo_run: Path, capsys) -> None:
    (demo_run / "step-00000020" / "state.json").unlink()
    assert run(["rollback", str(demo_run), "20"]) == 2
    assert "is not whole (state.json: missing" in capsys.readouterr().err
    assert (demo_run / "step-00000040").exists()
