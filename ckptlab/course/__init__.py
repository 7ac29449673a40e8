"""What a learner touches: notebooks with real ranks, exercises that check themselves, progress, quizzes. No torch.

`%load_ext ckptlab.course` gives a notebook `%%ranks` and `%%exercise`.
"""

from ckptlab.course.certificate import certificate
from ckptlab.course.magics import language, load_ipython_extension
from ckptlab.course.progress import hint, outcome, predict, progress, recheck, reset, solution
from ckptlab.course.quiz import quiz

__all__ = [
    "certificate", "hint", "language", "load_ipython_extension", "outcome", "predict", "progress", "quiz", "recheck", "reset",
    "solution",
]  # fmt: skip
