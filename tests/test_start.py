"""The course's door: copies that keep what a learner wrote, settings, messages; and Binder's files."""

import json
import os
import re
import socket
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from checkouts import check_out, opened

from ckptlab.cli.main import run
from ckptlab.course import start
from ckptlab.course.content import labs, starts
from ckptlab.course.links import as_html, as_markdown, binder_links
from ckptlab.errors import UsageError

ROOT = Path(__file__).parents[1]


def write_notebook(path: Path, *sources: str, outputs: tuple[str, ...] = ("secret",)) -> None:
    stdout = [{"output_type": "stream", "name": "stdout", "text": text} for text in outputs]
    cells = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "source": source, "outputs": stdout, "execution_count": i}
        for i, source in enumerate(sources)
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


def sources(path: Path) -> list[str]:
    return [cell["source"] for cell in json.loads(path.read_text())["cells"]]


def edit(path: Path, **members: object) -> None:
    """Do to the first cell, as JupyterLab saves it, what a learner does."""
    notebook = json.loads(path.read_text())
    notebook["cells"][0].update(members)
    path.write_text(json.dumps(notebook))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "02_shards.ipynb"
    write_notebook(path, "predict(3)", "print(3)")
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "my-labs"


def copy(lab: Path, mine: Path) -> list[str]:
    return list(start.copy_notebooks([lab], mine))


def test_a_copy_has_the_cells_and_no_outputs(lab: Path, mine: Path) -> None:
    before = lab.read_bytes()
    assert copy(lab, mine) == []
    text = (mine / lab.name).read_text()
    assert "secret" not in text
    cells = json.loads(text)["cells"]
    assert [(cell["source"], cell["id"], cell["execution_count"]) for cell in cells] == [
        ("predict(3)", "c0", None),
        ("print(3)", "c1", None),
    ]
    assert lab.read_bytes() == before


def test_a_copy_that_was_only_run_is_renewed_and_one_of_the_same_original_is_left_alone(lab: Path, mine: Path) -> None:
    copy(lab, mine)
    edit(mine / lab.name, outputs=[{"output_type": "stream", "name": "stdout", "text": "3"}], execution_count=7)
    ran = (mine / lab.name).read_bytes()
    assert copy(lab, mine) == []
    assert (mine / lab.name).read_bytes() == ran
    write_notebook(lab, "predict(4)", "print(4)")
    assert copy(lab, mine) == []
    assert sources(mine / lab.name) == ["predict(4)", "print(4)"]


def test_an_empty_cell_that_running_the_last_one_added_is_no_edit(lab: Path, mine: Path) -> None:
    copy(lab, mine)
    notebook = json.loads((mine / lab.name).read_text())
    notebook["cells"].append(notebook["cells"][0] | {"id": "new", "source": ""})
    (mine / lab.name).write_text(json.dumps(notebook))
    write_notebook(lab, "predict(4)")
    copy(lab, mine)
    assert sources(mine / lab.name) == ["predict(4)"]


def test_an_edited_copy_stays_and_what_is_newer_stands_beside_it_and_is_told_once(lab: Path, mine: Path) -> None:
    copy(lab, mine)
    edit(mine / lab.name, source="predict(5)")
    edited = (mine / lab.name).read_bytes()
    assert copy(lab, mine) == []  # edited, but the original is as it was
    for value in (6, 7):  # the second time the one beside is unedited, and renewed
        write_notebook(lab, f"predict({value})")
        (news,) = copy(lab, mine)
        assert "Yours is changed and stays as it is" in news
        assert news.endswith("02_shards-new.ipynb")
        assert copy(lab, mine) == []
        assert sources(mine / "02_shards-new.ipynb") == [f"predict({value})"]
    edit(mine / "02_shards-new.ipynb", source="predict(8)")
    write_notebook(lab, "predict(9)")
    assert copy(lab, mine)[0].endswith("02_shards-new-2.ipynb")
    assert sources(mine / "02_shards-new.ipynb") == ["predict(8)"]
    assert (mine / lab.name).read_bytes() == edited
    assert sorted(path.name for path in mine.iterdir()) == [
        "02_shards-new-2.ipynb",
        "02_shards-new.ipynb",
        "02_shards.ipynb",
    ]


@pytest.mark.parametrize("content", ["", "null", "[]", '{"metadata": {}}', '{"metadata": {"ckptlab_copy_of": "a"}}'])
def test_a_file_that_is_no_copy_of_ours_is_never_overwritten(lab: Path, mine: Path, content: str) -> None:
    mine.mkdir()
    (mine / lab.name).write_text(content)
    assert len(copy(lab, mine)) == 1
    assert (mine / lab.name).read_text() == content


def test_the_environment_keeps_what_else_is_set_in_it(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "ipython" / "ipython_kernel_config.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"InteractiveShell": {"colors": "nocolor"}}')
    for _ in range(2):
        start.prepare_environment(tmp_path)
    assert json.loads(path.read_text()) == {
        "InteractiveShell": {"colors": "nocolor"},
        "InteractiveShellApp": {"extensions": ["ckptlab.course.magics"]},
        "Completer": {"use_jedi": False},
    }


@pytest.fixture
def course(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A copy of the course with one lab, and the environment to start it in."""
    (tmp_path / "labs").mkdir()
    write_notebook(tmp_path / "labs" / "00_start.ipynb", "1 + 1")
    return tmp_path, check_out(tmp_path)


def prepare(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ckptlab.course.start", "--prepare"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_prepare_makes_the_copies_and_says_nothing(course: tuple[Path, dict[str, str]]) -> None:
    answer = prepare(*course)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert sources(course[0] / "my-labs" / "00_start.ipynb") == ["1 + 1"]


def test_a_folder_that_cannot_be_written_is_told_in_a_line(course: tuple[Path, dict[str, str]]) -> None:
    (course[0] / "my-labs").touch()  # in the way; a test that runs as root may write everywhere else
    answer = prepare(*course)
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert answer.stderr.startswith(f"error: {course[0] / 'my-labs'}: ")


def test_a_package_without_notebooks_is_told_in_a_line(course: tuple[Path, dict[str, str]]) -> None:
    (course[0] / "labs" / "00_start.ipynb").unlink()
    answer = prepare(*course)
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert answer.stderr.startswith(f"error: no notebooks in {course[0] / 'labs'}: ")


def test_without_a_browser_it_prints_an_address_that_answers_even_if_its_port_is_taken(
    course: tuple[Path, dict[str, str]],
) -> None:
    folder, environment = course
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with opened(folder, environment | {"JUPYTER_PORT": port}) as (address, log):
            assert f"The port {port} is already in use, trying another port." in log.read_text()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/lab/tree/00_start\.ipynb\?token=\w+", address)
            with urllib.request.urlopen(address, timeout=30) as page:
                assert page.status == 200


def test_binder_finds_its_files_under_their_names_and_runs_what_builds_the_course() -> None:
    assert sorted(path.name for path in (ROOT / "binder").iterdir()) == ["environment.yml", "postBuild"]
    post_build = ROOT / "binder" / "postBuild"
    assert stat.S_IMODE(post_build.stat().st_mode) == 0o755


@pytest.mark.parametrize("fails", ["", "pip", "ckptlab.course.start"])
def test_a_build_on_binder_ends_where_a_part_of_it_fails(fails: str, tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("torch==1\nnumpy==1\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$2" >> called\n[ "$2" != "{fails}" ]\n')
    python.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run([ROOT / "binder" / "postBuild"], cwd=tmp_path, env=environment, check=False)
    assert (ended.returncode != 0) == bool(fails)
    assert (tmp_path / "called").read_text().split() == ["pip", "ckptlab.course.start"][: 1 if fails == "pip" else 2]


def test_binder_takes_torch_from_conda_and_nothing_of_it_from_the_lock(tmp_path: Path) -> None:
    (line,) = re.findall(r"^grep .*?(?= *#)", (ROOT / "binder" / "postBuild").read_text(), re.MULTILINE)
    (tmp_path / "constraints.txt").write_bytes((ROOT / "constraints.txt").read_bytes())
    subprocess.run(["bash", "-euc", line], cwd=tmp_path, check=True)
    pinned = (tmp_path / "rest.txt").read_text()
    assert not re.search(r"^torch\b", pinned, re.MULTILINE)
    assert len(pinned.splitlines()) == len((ROOT / "constraints.txt").read_text().splitlines()) - 1


def test_links_open_the_copies_on_binder(lab: Path) -> None:
    write_notebook(lab, "x")
    heading = {"cell_type": "markdown", "id": "t", "metadata": {}, "source": ["# 02 Shards & <boxes>\n", "\n", "Text"]}
    notebook = json.loads(lab.read_text())
    lab.write_text(json.dumps(notebook | {"cells": [heading, *notebook["cells"]]}))
    links = binder_links("someone/course.pages", [lab])
    url = "https://mybinder.org/v2/gh/someone/course.pages/HEAD?urlpath=lab%2Ftree%2Fmy-labs%2F02_shards.ipynb"
    assert as_markdown(links) == f"- [02 Shards & <boxes>]({url})"
    assert f'<li><a href="{url}">02 Shards &amp; &lt;boxes&gt;</a></li>' in as_html(links)


@pytest.mark.parametrize("repository", ["", "name", "a/b/c", "https://github.com/a/b", "a b/c", "a/b?x"])
def test_links_need_a_repository_by_owner_and_name(repository: str) -> None:
    with pytest.raises(UsageError, match="expected OWNER/NAME"):
        binder_links(repository, [])


def test_doctor_prints_the_links_of_all_labs_for_markdown_and_html(capsys) -> None:
    assert run(["doctor", "--links", "someone/course"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for lab in [*labs(), *starts()]:
        assert sum("/gh/someone/course/HEAD?" in line and lab.name in line for line in lines) == 2
    assert run(["doctor", "--links", "course"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
