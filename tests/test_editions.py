"""What is handed out of the labs: pages that need nothing else, solutions that are right, wheels that suit."""

import json
import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from labs.execute import execute

from ckptlab.course.content import LABS, exercises, labs
from ckptlab.course.editions.__main__ import main
from ckptlab.course.editions.anew import made_anew
from ckptlab.course.editions.wheels import lock
from ckptlab.course.exercise import read
from ckptlab.errors import UsageError

ROOT = LABS.parent
SCRIPTS = ROOT / "ckptlab/course/editions"


class Page(HTMLParser):
    """What a page says, where it leads, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.said, self.links, self.loads = [], [], []
        self.feed(path.read_text())
        self.text = "".join(self.said)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src"):
                (self.links if tag == "a" else self.loads).append(value or "")

    def handle_data(self, data: str) -> None:
        self.said.append(data)


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("html")
    main(["html", str(folder)])
    return folder


@pytest.fixture(scope="module")
def solutions(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("solutions")
    main(["solutions", str(folder)])
    return folder


def cells(path: Path) -> list[dict]:
    return [cell | {"source": "".join(cell["source"])} for cell in json.loads(path.read_text())["cells"]]


def words(cell: dict) -> list[str]:
    """What stands below a cell, apart from HTML, which is shown as it is."""
    return [
        "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
        for output in cell["outputs"]
        if "text/html" not in output.get("data", ())
    ]


@pytest.mark.parametrize("lab", labs(), ids=lambda path: path.stem)
def test_a_page_says_what_the_notebook_says(html: Path, lab: Path) -> None:
    said = Page(html / f"{lab.stem}.html").text
    for cell in cells(lab):
        if cell["cell_type"] == "code":
            assert [text for text in (cell["source"], *words(cell)) if text.rstrip("\n") not in said] == []


def test_every_link_leads_to_a_file_and_nothing_is_loaded_from_elsewhere(html: Path, solutions: Path) -> None:
    for path in (*html.glob("*.html"), *(solutions / "html").glob("*.html")):
        page = Page(path)
        local = [urlsplit(link) for link in page.links if not link.startswith("https://")]
        assert [link for link in local if link.path and not (path.parent / link.path).is_file()] == []
        assert [file for file in page.loads if file != "data:," and not (path.parent / file).is_file()] == []


def test_the_first_page_leads_to_all_that_the_readme_of_the_labs_leads_to(html: Path) -> None:
    linked = set(re.findall(r"\]\((\w+\.(?:ipynb|md))\)", (LABS / "README.md").read_text()))
    assert {path.name for path in labs()} <= linked
    assert {f"{Path(name).stem}.html" for name in linked} | {"exercises.html"} <= set(Page(html / "index.html").links)


def test_the_solutions_stand_in_the_exercises_cells_and_the_wrong_answers_below(solutions: Path) -> None:
    for id_, path in exercises().items():
        there = [cell["source"] for lab in labs() for cell in cells(solutions / lab.name)]
        (place,) = [number for number, source in enumerate(there) if source.startswith(f"%%exercise {id_}\n")]
        assert there[place] == f"%%exercise {id_}\n{read(path).solution}"
        assert [remark for remark in read(path).wrong.values() if remark not in there[place + 1]] == []


@pytest.mark.timeout(300)
def test_a_lab_with_solutions_runs_and_every_exercise_is_right(solutions: Path) -> None:
    ran = [cell for cell in execute(solutions / "03_index_files.ipynb").cells if cell.source.startswith("%%exercise")]
    assert len(ran) == sum(id_.startswith("3.") for id_ in exercises())
    told = ["".join(output.get("text", "") for output in cell.outputs) for cell in ran]
    assert [text for text in told if not re.match(r"3\.\d: right\.", text)] == []


def test_a_folder_made_here_is_replaced_when_the_new_one_is_whole_and_not_before(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    for name in ("old", "new"):
        with made_anew(folder) as building:
            (building / name).touch()
            assert not (folder / name).exists()
    with pytest.raises(OSError, match="No space left"), made_anew(folder) as building:
        raise OSError("No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["pages"]
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == ["new"]


@pytest.mark.parametrize("kind", ["a folder", "a file", "a link"])
def test_what_was_not_made_here_is_refused_and_kept(kind: str, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter").write_text("mine")
    (tmp_path / "made").mkdir()
    (tmp_path / "link").symlink_to("made")
    place = {"a folder": "thesis", "a file": "thesis/chapter", "a link": "link"}[kind]
    with pytest.raises(UsageError, match=f"{place} is there and was not made by this command"):
        main(["html", str(tmp_path / place)])
    done = subprocess.run(["sh", SCRIPTS / "offline.sh", tmp_path / place], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, "was not made by this command" in done.stderr) == (1, True)
    assert (tmp_path / "thesis/chapter").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "made", "thesis"]


def test_without_a_network_the_folder_made_before_stays_and_the_cause_is_told(tmp_path: Path) -> None:
    with made_anew(tmp_path / "offline") as building:
        (building / "good").touch()
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    environment = os.environ | nowhere | {"PIP_EXTRA_INDEX_URL": ""}
    command = ["sh", SCRIPTS / "offline.sh", tmp_path / "offline"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: the package index could not be reached. Is there a network?"
    assert (tmp_path / "offline/good").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["offline"]


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sh")), ids=lambda path: path.name)
def test_the_scripts_are_in_the_language_of_every_shell(script: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True)


def test_the_wheels_suit_the_first_release_of_a_python_as_the_last() -> None:
    lines = [
        "# a comment",
        "numpy==2.4.6 ; python_full_version < '3.12'",
        "numpy==2.5.5 ; python_full_version >= '3.12'",
        "soupsieve==2.10 ; python_full_version < '3.11.5'",
        "soupsieve==4.1.3 ; python_full_version >= '3.11.5'",
        "torch==2.13.0",
    ]
    found = list(lock(lines, "3.11", torch="2.13.0+cpu"))
    assert found == ["numpy==2.4.6", "soupsieve==2.10", "torch==2.13.0", "torch==2.13.0+cpu"]
