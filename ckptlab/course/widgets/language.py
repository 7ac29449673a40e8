"""The languages as buttons, and in words which one is chosen."""

from functools import partial
from typing import Any

import ipywidgets

from ckptlab.course.choice import choose, told
from ckptlab.course.figures.picture import show
from ckptlab.course.languages import LANGUAGES, Message, current, tell
from ckptlab.course.markup import as_html

TO_CHOOSE = " or ".join(f'language("{code}")' for code in LANGUAGES)


class LanguageButtons:
    """A button for each language, by the name that it has for itself, and beside it, in that language, what it gives."""

    def __init__(self) -> None:
        self._status = ipywidgets.HTML()
        self.buttons = {code: _button(name, partial(self._press, code)) for code, name in LANGUAGES.items()}
        rows = [_row(code, button) for code, button in self.buttons.items()]
        self.box = ipywidgets.VBox([self._status, *rows], layout={"max_width": "60em"})
        self._show([_now()])

    def _press(self, code: str) -> None:
        try:
            choose(code)
        except OSError as error:
            self._show([Message("language.not-kept", "Your choice could not be kept ({error}). Try again.", {"error": error})])
            return
        self._show([_now(), *told(code)])

    def _show(self, messages: list[Message]) -> None:
        self._status.value = f'<div role="status">{"".join(as_html(tell(message)) for message in messages)}</div>'
        for code, button in self.buttons.items():
            button.style.font_weight = "bold" if code == current() else "normal"

    def _ipython_display_(self) -> None:
        """Show the buttons, and a text which stays when they are gone."""
        view = {"model_id": self.box.model_id, "version_major": 2, "version_minor": 0}
        note = tell(Message("language.note", "Without buttons: {calls} in a cell.", {"calls": TO_CHOOSE}))
        show({"application/vnd.jupyter.widget-view+json": view, "text/plain": str(tell(_now()))})
        show({"text/html": as_html(note), "text/plain": str(note)})


def _now() -> Message:
    return Message("language.now", "The language is {language}.", {"language": LANGUAGES.get(current(), current())})


def _row(code: str, button: Any) -> Any:
    """Say in a language what its button gives; a button itself cannot be marked as of a language."""
    message = Message("language.offer", "Quizzes, hints and verdicts in {language}.", {"language": LANGUAGES[code]})
    offer = ipywidgets.HTML(as_html(tell(message, code)), layout={"flex": "1 1 12em", "min_width": "0"})
    return ipywidgets.HBox([button, offer], layout={"align_items": "flex-start"})


def _button(label: str, do: Any) -> Any:
    button = ipywidgets.Button(description=label, layout={"width": "8em", "flex": "0 0 auto"})
    button.on_click(lambda _: do())
    return button
