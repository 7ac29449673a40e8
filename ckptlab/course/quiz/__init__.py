"""Questions, graded: banks read strictly, drawn and marked by pure functions, attempts folded from the journal.

In the order in which they act: `bank` (with `strict_yaml`, `rules`), `draw`, `card`, `grade`, `attempts`, `passing`, `words`;
`sitting` has the effects. For authors: `proof`, `survey`, `gift`. Nothing here loads torch, and keys are open: who takes the
course by themselves can read them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckptlab.course.widgets.quiz import QuizWidget

__all__ = ["quiz"]


def quiz(name: str) -> "QuizWidget":
    """Show a quiz in a notebook: of a lab, `quiz("02")`, or `quiz("final")`."""
    from ckptlab.course.widgets.quiz import QuizWidget  # ipywidgets, only where a notebook shows a quiz

    return QuizWidget(name)
