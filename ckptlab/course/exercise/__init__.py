"""Exercises, one file each in `labs/exercises/`: the kernel reads them, the ranks run them and judge the learner's answer.

An exercise is a stub, hints, a solution, named wrong answers and a `check`, which yields a `Case` for everything it asks of an
answer. Nothing here imports torch; an exercise's file does, and only ranks import that.
"""

from ckptlab.course.exercise.attempt import run_answer, try_answer
from ckptlab.course.exercise.case import Case
from ckptlab.course.exercise.source import Exercise, read
from ckptlab.course.exercise.verdict import Verdict

__all__ = ["Case", "Exercise", "Verdict", "read", "run_answer", "try_answer"]
