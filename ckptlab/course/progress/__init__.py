"""How far the learner is, computed from the journal; and what a learner calls in a notebook."""

from ckptlab.course.progress.advice import hint, solution
from ckptlab.course.progress.keeping import Progress, recheck, reset
from ckptlab.course.progress.predictions import outcome, predict

progress = Progress()

__all__ = ["hint", "outcome", "predict", "progress", "recheck", "reset", "solution"]
