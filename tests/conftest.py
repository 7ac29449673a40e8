"""What every test needs, whoever starts them."""

import signal

import pytest

from ckptlab.course.languages import OWN, VARIABLE

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background


@pytest.fixture(autouse=True)
def no_language_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin in English, whatever who runs the tests has chosen, and leave nothing to the next test."""
    for name in (VARIABLE, OWN):
        monkeypatch.setenv(name, "")  # else nothing is put back of what a test sets
        monkeypatch.delenv(name)
