"""A quiz in a notebook: one question at a time, its answer explained at once. Nothing is kept here; the journal has it all.

All widgets are made once and filled anew for each question, so that the focus can be put on them. Callbacks may come on a
thread of their own (a kernel's subshell), while a cell or another of them runs: each takes the lock and looks whether it still
fits what is shown.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import ipywidgets

from ckptlab.course.figures.picture import show
from ckptlab.course.languages import Message, label, tell
from ckptlab.course.markup import as_html, marked
from ckptlab.course.quiz import sitting, words
from ckptlab.course.quiz.attempts import Sheet
from ckptlab.course.quiz.card import Card, Key, card_of
from ckptlab.course.quiz.draw import FINAL
from ckptlab.errors import CkptlabError, UsageError

WHOLE_LABEL = {"description_width": "initial"}
NOTE = "Answers are kept in your journal. If there are no buttons here, run the cell: you go on where you stopped."


class QuizWidget:
    """Shows a quiz and takes its answers.

    Raises:
        UsageError: there is no such quiz, or a bank is not as it should be.
    """

    def __init__(self, name: str) -> None:
        self.paper = sitting.open_paper(name)
        self._lock = threading.RLock()
        self._sheet: Sheet | None = None
        self._index = 0
        self._card: Card | None = None  # None unless a question waits for its answer
        standing = sitting.look(self.paper)
        self.summary = words.summary(self.paper, standing)
        self._make()
        self._say(self._status, words.title(self.paper))
        self._say(self._question, *words.introduction(self.paper, standing))
        self._offer(Message("quiz.go", "Go on") if standing.open else Message("quiz.start", "Begin"))

    def _make(self) -> None:
        """Make all that is ever shown."""
        questions = [question for bank in self.paper.banks for question in bank.questions]
        num_rows = max(len(question.options or question.items or question.pairs) for question in questions)
        num_keys = max(len(question.pairs) or (2 if question.items else 1) for question in questions)
        self._status, self._question, self._legend, self._feedback = (ipywidgets.HTML() for _ in range(4))
        self._rows = [_Row(number, num_keys, self._press) for number in range(num_rows)]
        self._field = ipywidgets.Text(
            description=label(Message("quiz.field", "Your answer")),
            continuous_update=False,  # else the last letters may come after the press of the button
            layout={"width": "100%", "max_width": "32em"},
            style=WHOLE_LABEL,
        )
        self._check = _button(label(Message("quiz.check", "Check my answer")), self._answer)
        self._leave = _button(label(Message("quiz.leave", "Leave it out")), self._leave_out)
        self._next = _button("", self._go_on)
        self._report = _button(label(Message("quiz.report", "Report this question")), self._show_report)
        self._report_text = ipywidgets.Textarea(
            description=label(Message("quiz.report-text", "To copy")),
            rows=8,
            layout={"width": "98%", "max_width": "40em"},
            style=WHOLE_LABEL,
        )
        keys = ipywidgets.HBox([self._check, self._leave, self._next, self._report], layout={"flex_flow": "row wrap"})
        parts = [self._status, self._question, self._legend, *(row.box for row in self._rows), self._field]
        self.box = ipywidgets.VBox([*parts, self._feedback, keys, self._report_text], layout={"max_width": "60em"})
        for part in (self._legend, *(row.box for row in self._rows), self._field, *keys.children, self._report_text):
            _show(part, False)

    def _press(self, row: int, key: int) -> None:
        with self._lock:
            if self._card is None:
                return
            order = self._card.drawn.question.type == "order"
            self._card = self._card.press(row, key)
            if self._card.answers_at_once:
                self._answer()
                return
            self._fill_rows(self._card)
            if order and 0 <= (to := row + (-1, 1)[key]) < len(self._card.picked):
                self._rows[to].keys[key].focus()  # goes along with what it has moved

    def _answer(self) -> None:
        """Take the answer as it stands."""
        with self._lock:
            if self._card is None:
                return
            question = self._card.drawn.question
            if question.type != "exercise":
                self._give(self._field.value if self._card.has_field else self._card.given())
                return
            self._say(self._feedback, Message("quiz.running", "Your answer runs again, on real ranks …"))
            try:
                is_right = sitting.exercise_is_right(question.exercise)
            except CkptlabError as error:
                self._say(self._feedback, str(error))
                return
            if is_right:
                self._give(True)
            else:
                text = "Exercise {id} is not right yet in your journal. Solve it in its lab, then check again here."
                self._say(self._feedback, Message("quiz.unsolved", text, {"id": question.exercise}))

    def _leave_out(self) -> None:
        with self._lock:
            if self._card is not None:
                self._give(None)

    def _give(self, given: object) -> None:
        card, sheet = self._card, self._sheet
        assert card is not None, "a question waits"
        assert sheet is not None, "it is of a sheet"
        try:
            self._sheet = sitting.answer(self.paper, sheet, card.drawn, given)
        except UsageError as error:
            values = {"what": Message("quiz.wanted-form", str(error))}
            self._say(self._feedback, Message("quiz.no-answer", "Not an answer yet: {what}.", values))
            return
        except sitting.AttemptGone:
            self._end_of_card()
            return
        except OSError as error:
            self._not_kept(error)
            return
        self._card = None
        self._tell(card, given)

    def _end_of_card(self) -> None:
        """Say that the attempt is gone, and offer a new one."""
        self._card = self._sheet = None
        self._say(self._feedback, words.gone())
        for part in (self._check, self._leave, self._report):
            _show(part, False)
        self._offer(Message("quiz.again", "New attempt"))

    def _not_kept(self, error: OSError) -> None:
        text = "Your journal could not be written ({error}). Try again."
        self._say(self._feedback, Message("quiz.not-kept", text, {"error": error}))

    def _tell(self, card: Card, given: object) -> None:
        """Explain the answer, and offer the next question."""
        assert self._sheet is not None, "an answer was kept"
        answer = self._sheet.answers[self._index]
        assert answer is not None, "it has just been given"
        for part in (self._check, self._leave):
            _show(part, False)
        self._fill_rows(card, is_over=True)
        self._field.disabled = True
        self._say(self._status, words.title(self.paper), words.status(self._sheet, self._index))
        told: list[Message | str] = [words.outcome(answer.mark)]
        if answer.given != given:
            told.append(words.earlier())
        told += words.feedback(card.drawn, answer)
        self._feedback.value = _framed(told, answer.mark.is_right)
        is_last = self._sheet.next is None
        self._offer(Message("quiz.result", "See what you reached") if is_last else Message("quiz.next", "Next question"))
        self._next.focus()

    def _go_on(self) -> None:
        """Show the next question, or begin, or show what was reached."""
        with self._lock:
            if self._card is not None:
                return
            _show(self._report_text, False)
            self._feedback.value = ""
            if self._sheet is not None and self._sheet.next is None:
                self._end(self._sheet)
                return
            try:
                standing = sitting.begin(self.paper)
            except OSError as error:
                self._not_kept(error)
                return
            self._sheet = standing.open
            if self._sheet is None:
                self._say(self._question, *words.introduction(self.paper, standing))
                return
            self._ask(self._sheet)

    def _ask(self, sheet: Sheet) -> None:
        assert sheet.next is not None, "it is open"
        self._index = sheet.next
        drawn = sheet.drawn[self._index]
        card = self._card = card_of(drawn)
        self._say(self._status, words.title(self.paper), words.status(sheet, self._index))
        self._question.value = as_html(tell(words.ask(drawn)))
        self._fill_rows(card)
        self._field.value, self._field.disabled = "", False
        _show(self._field, card.has_field)
        _show(self._check, not card.answers_at_once)
        _show(self._leave, drawn.question.type == "exercise")
        _show(self._report, True)
        _show(self._next, False)
        first = self._rows[0].keys[0] if card.rows() else self._field if card.has_field else self._check
        first.focus()

    def _end(self, sheet: Sheet) -> None:
        self._sheet = None
        self._say(self._status, words.title(self.paper), words.finished(self.paper, sheet))
        for part in (self._legend, *(row.box for row in self._rows), self._field, self._report):
            _show(part, False)
        told: list[Message | str] = [*words.introduction(self.paper, sitting.look(self.paper))]
        if self.paper.name == FINAL:
            running = Message("quiz.running-all", "Your exercises run again, which takes a little …")
            self._say(self._question, *told, running)
            try:
                told.insert(0, words.course(sitting.result()))
            except CkptlabError as error:
                told.insert(0, str(error))
        self._say(self._question, *told)
        self._offer(Message("quiz.again", "New attempt"))
        self._next.focus()

    def _show_report(self) -> None:
        with self._lock:
            if self._sheet is not None:
                self._report_text.value = words.report(self.paper, self._sheet.drawn[self._index])
                _show(self._report_text, True)
                self._report_text.focus()

    def _fill_rows(self, card: Card, *, is_over: bool = False) -> None:
        rows = card.rows()
        for number, row in enumerate(self._rows):
            _show(row.box, number < len(rows))
            if number < len(rows):
                row.fill(rows[number].keys, marked(rows[number].mark, rows[number].text), is_over)
        legend = card.legend()
        self._legend.value = "".join(marked(f"{letter}.", told) for letter, told in legend)
        _show(self._legend, bool(legend))

    def _offer(self, message: Message) -> None:
        self._next.description = self._next.tooltip = label(message)
        _show(self._next, True)

    def _say(self, where: Any, *texts: Message | str) -> None:
        where.value = f'<div role="status">{_html(texts)}</div>'

    def _ipython_display_(self) -> None:
        """Show the widget, and a text which stays when the widget is gone."""
        view = {"model_id": self.box.model_id, "version_major": 2, "version_minor": 0}
        show({"application/vnd.jupyter.widget-view+json": view, "text/plain": self.summary})
        show({"text/html": as_html(tell(Message("quiz.note", NOTE))), "text/plain": str(tell(Message("quiz.note", NOTE)))})


class _Row:
    """Keys beside a text that wraps."""

    def __init__(self, number: int, num_keys: int, press: Callable[[int, int], None]) -> None:
        self.keys = [_button("", partial(press, number, key)) for key in range(num_keys)]
        self._text = ipywidgets.HTML(layout={"flex": "1 1 12em", "min_width": "0"})
        self.box = ipywidgets.HBox([*self.keys, self._text], layout={"flex_flow": "row wrap", "align_items": "flex-start"})

    def fill(self, keys: tuple[Key, ...], text: str, is_over: bool) -> None:
        """Show a row; its keys do nothing any more when the question is over."""
        self._text.value = text
        for number, button in enumerate(self.keys):
            _show(button, number < len(keys))
            if number < len(keys):
                button.description, button.tooltip = keys[number].label, keys[number].does
                button.style.font_weight = "bold" if keys[number].is_chosen else "normal"
                button.disabled = is_over and not keys[number].is_chosen  # what was chosen stays easy to read


def _button(label: str, do: Callable[[], None]) -> Any:
    button = ipywidgets.Button(
        description=label, tooltip=label, layout={"width": "auto", "max_width": "100%", "flex": "0 0 auto"}
    )
    button.on_click(lambda _: do())
    return button


def _show(widget: Any, is_shown: bool) -> None:
    widget.layout.display = None if is_shown else "none"


def _html(texts: Iterable[Message | str]) -> str:
    return "".join(as_html(tell(text) if isinstance(text, Message) else text) for text in texts)


def _framed(texts: Iterable[Message | str], is_right: bool) -> str:
    """Frame feedback; the colour says nothing that the words do not."""
    colour = "var(--jp-success-color1)" if is_right else "var(--jp-warn-color1)"
    return f'<div role="status" style="border-left:4px solid {colour}; padding-left:.8em">{_html(texts)}</div>'
