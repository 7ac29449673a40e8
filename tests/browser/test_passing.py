"""Somebody passes the course and makes the certificate in JupyterLab; a stranger opens its link in another browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkouts import check_out, opened
from notebook_page import AREA, Notebook
from passing import claim_exercises, take_final

from ckptlab.cli.main import run
from ckptlab.course.certificate.page import make_page
from ckptlab.course.content import LABS, QUIZZES

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
PAGE = "https://course.example/verify.html"
NAME = "Ọlụchi <b>Ṅwankwọ</b>"


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Iterator[tuple[Path, str]]:
    """The course, for somebody whose exercises are right and who has not taken the final."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(LABS, folder / "labs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(QUIZZES, folder / "quizzes")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CKPTLAB_HOME", str(folder / "journal"))
        claim_exercises()
        environment = check_out(folder) | {"CKPTLAB_HOME": str(folder / "journal"), "CKPTLAB_VERIFY_PAGE": PAGE}
        with opened(folder, environment) as (address, _):
            yield folder, address


def test_who_passes_makes_a_certificate_that_a_stranger_can_check_and_no_letter_of_its_link_can_be_changed(
    page, course: tuple[Path, str], stranger, photograph
) -> None:
    notebook = Notebook(page, *course, "quiz.ipynb")
    notebook.run_all()
    cell = notebook.cell("certificate(")
    assert "No certificate yet. To pass the course: 80 % in the final (you have 0 %)." in cell.locator(AREA).inner_text()
    take_final(left_out=2)
    notebook.write(cell, f'certificate("{NAME}")')
    told = notebook.run(notebook.cell("certificate("))
    (folder,) = (course[0] / "my-labs" / "certificates").iterdir()
    assert "self-issued" in told
    assert f"its ID is {folder.name}" in told
    picture = cell.locator(f"{AREA} img")
    assert picture.evaluate("(image) => image.naturalWidth") > 1000
    assert f"Self-issued certificate: Checkpoint sharding and resumable training. Name, as typed: {NAME}. Final quiz: 86 %" in (
        picture.get_attribute("alt") or ""
    )
    notebook.show_whole()
    photograph(page, "certificate-in-notebook")
    link = cell.locator(f"{AREA} a").get_attribute("href") or ""
    asked: list[str] = []
    stranger.on("request", lambda request: asked.append(request.url))
    stranger.route("**/*", lambda route: route.fulfill(body=make_page(), content_type="text/html; charset=utf-8"))
    stranger.goto(link)
    stranger.get_by_role("heading", name="Unchanged, and self-issued").wait_for()
    facts = stranger.locator("#facts").inner_text()
    assert all(text in facts for text in (NAME, "Final quiz: 86 %", folder.name))
    photograph(stranger, "certificate-seen-by-a-stranger")
    at = len(link) - 300
    changed = link[:at] + ("A" if link[at] != "A" else "B") + link[at + 1 :]
    stranger.goto("about:blank")
    stranger.goto(changed)
    stranger.get_by_role("heading", name="Not valid").wait_for()
    assert stranger.locator("#about").is_hidden()
    photograph(stranger, "certificate-changed-link")
    assert {url.partition("#")[0] for url in asked} <= {PAGE, "https://course.example/favicon.ico", "about:blank"}
    assert run(["certificate", "verify", str(folder / "certificate.png"), "--id", folder.name]) == 3
