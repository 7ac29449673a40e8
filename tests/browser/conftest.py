"""JupyterLab, started by the course's own start on copies of the labs, and Chromium in front of it."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkouts import check_out, opened

from ckptlab.course.content import LABS, QUIZZES

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is. That it or playwright is missing is a failure where CKPTLAB_REQUIRE asks for browser tests."""
    refuse = pytest.fail if "browser" in os.environ.get("CKPTLAB_REQUIRE", "").split(",") else pytest.skip
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        refuse("playwright is not installed: pip install 'ckptlab[libraries]'")
    found = shutil.which("chromium")
    if found is None:
        refuse("chromium is not on the path")
    return str(found)


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Iterator[tuple[Path, str]]:
    """A folder with a learner's copy of the course, and the address that the start has printed."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(LABS, folder / "labs")
    shutil.copytree(QUIZZES, folder / "quizzes")
    with opened(folder, check_out(folder)) as (address, _):
        yield folder, address


@pytest.fixture(scope="module")
def wrong_in_page() -> list[str]:
    """The errors in the page's own scripts, since the last test."""
    return []


@pytest.fixture(autouse=True)
def nothing_wrong_in_page(wrong_in_page: list[str]) -> Iterator[None]:
    """Fail the test in which the page's own scripts raise an error."""
    yield
    found = wrong_in_page.copy()
    wrong_in_page.clear()
    assert found == []


@pytest.fixture(scope="module")
def browsers(chromium: str) -> Iterator[object]:
    """What starts browsers."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium


@pytest.fixture(scope="module")
def page(browsers, chromium: str, wrong_in_page: list[str], tmp_path_factory) -> Iterator[object]:
    """A page of a new browser."""
    profile = tmp_path_factory.mktemp("profile")
    window = browsers.launch_persistent_context(
        profile, executable_path=chromium, args=FLAGS, viewport={"width": 1280, "height": 900}
    )
    window.pages[0].on("pageerror", lambda error: wrong_in_page.append(str(error)))
    yield window.pages[0]
    window.close()


@pytest.fixture
def stranger(browsers, chromium: str, wrong_in_page: list[str]) -> Iterator[object]:
    """A page of another browser, which knows nothing of the first."""
    browser = browsers.launch(executable_path=chromium, args=FLAGS)
    new = browser.new_page(viewport={"width": 1280, "height": 900})
    new.on("pageerror", lambda error: wrong_in_page.append(str(error)))
    yield new
    browser.close()


@pytest.fixture(scope="session")
def photograph(tmp_path_factory) -> Callable[[object, str], None]:
    """Keep a picture of the page under a name, for a person to look at."""
    folder = tmp_path_factory.mktemp("screenshots")
    return lambda page, name: page.screenshot(path=folder / f"{name}.png")
