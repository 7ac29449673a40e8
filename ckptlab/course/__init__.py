"""What a learner touches: notebooks with real ranks, exercises that check themselves, progress. No torch.

`%load_ext ckptlab.course` gives a notebook `%%ranks` and `%%exercise`.
"""

from typing import TYPE_CHECKING

from ckptlab.course.progress import hint, outcome, predict, progress, recheck, reset, solution

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["hint", "load_ipython_extension", "outcome", "predict", "progress", "recheck", "reset", "solution"]


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Give a notebook the course's magics; IPython calls it. Loading twice does no harm."""
    from ckptlab.course.magics import install  # IPython is loaded only where a notebook is

    install(shell)
