"""What a learner touches: notebooks with real ranks, exercises that check themselves, progress. No torch.

`%load_ext ckptlab.course` gives a notebook `%%ranks` and `%%exercise`.
"""

from ckptlab.course.magics import load_ipython_extension
from ckptlab.course.progress import hint, outcome, predict, progress, recheck, reset, solution

__all__ = ["hint", "load_ipython_extension", "outcome", "predict", "progress", "recheck", "reset", "solution"]
