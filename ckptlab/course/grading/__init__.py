"""For instructors: what learners hand in, run again in bounds; which are the same; what the room fell for. No torch.

A learner's `submit` writes one file. `grade` reads a folder of these (reading), grades their quizzes (quizzes), runs every
answer that is claimed right (running, child, bounds), marks what a person should look at (cautions, likeness), and gives a
`Graded` for each file.
"""

from ckptlab.course.grading.grade import grade
from ckptlab.course.grading.result import Graded, Outcome
from ckptlab.course.grading.submission import submit

__all__ = ["Graded", "Outcome", "grade", "submit"]
