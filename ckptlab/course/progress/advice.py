"""Hints one by one, and the solution after an attempt."""

from ckptlab.course import content, journal
from ckptlab.course.exercise import read
from ckptlab.course.languages import Message, say
from ckptlab.course.progress.fold import fold
from ckptlab.errors import UsageError


def hint(id_: str) -> None:
    """Print the next hint of an exercise; after the last one, that one again."""
    hints = read(content.exercise_file(id_)).hints
    number = fold(journal.read()).tried(id_).num_hints + 1
    if number <= len(hints):
        journal.append("hint", id=id_, number=number)
    number = min(number, len(hints))
    text = Message(f"exercise.{id_}.hint.{number}", hints[number - 1])
    print(say("hint", "hint {number} of {total}: {text}", number=number, total=len(hints), text=text))


def solution(id_: str) -> None:
    """Print an exercise's solution, once there was an attempt."""
    exercise = read(content.exercise_file(id_))
    if not fold(journal.read()).tried(id_).num_attempts:
        raise UsageError(f'the solution of {id_} is shown after an attempt; hint("{id_}") helps to make one')
    print(exercise.solution)
