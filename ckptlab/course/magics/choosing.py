"""`language("ig")`: a learner chooses a language in a notebook."""

from typing import TYPE_CHECKING

from ckptlab.course.choice import choose, told
from ckptlab.course.languages import tell

if TYPE_CHECKING:
    from ckptlab.course.widgets.language import LanguageButtons


def language(code: str | None = None) -> "LanguageButtons | None":
    """Have quizzes, hints and verdicts in a language: `language("ig")`, "so" or "en"; without a code, choose by buttons.

    It holds for every notebook from its `%load_ext ckptlab.course` on, and for the course's commands in the terminal.

    Raises:
        UsageError: there is no such language.
    """
    from ckptlab.course.figures.picture import show  # IPython and ipywidgets, only in a notebook
    from ckptlab.course.markup import as_html
    from ckptlab.course.widgets.language import LanguageButtons

    if code is None:
        return LanguageButtons()
    choose(code)
    lines = [tell(message) for message in told(code)]
    show({"text/html": "".join(map(as_html, lines)), "text/plain": "\n".join(map(str, lines))})
    return None
