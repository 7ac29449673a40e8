"""What somebody does who passes the course: right answers to exercises and to the final, put into a journal."""

from ckptlab.course import journal
from ckptlab.course.content import exercises
from ckptlab.course.exercise import read
from ckptlab.course.quiz import sitting
from ckptlab.course.quiz.draw import FINAL, Drawn
from ckptlab.course.quiz.passing import asked_for


def right_one(one: Drawn) -> object:
    """Return the right answer of any question, by its bank."""
    question = one.question
    match question.type:
        case "single":
            return next(option.id for option in question.options if option.right)
        case "multiple":
            return [option.id for option in question.options if option.right]
        case "numeric":
            return _filled(one, question.answer)
        case "text":
            return _filled(one, question.accept[0])
        case "order":
            return list(range(len(question.items)))
        case "match":
            return list(range(len(question.pairs)))
    return True


def _filled(one: Drawn, text: str) -> str:
    for name, value in one.values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def claim_exercises() -> None:
    """Write the course's solutions into the journal of `CKPTLAB_HOME`, as right; whoever reads it has to run them."""
    for id_ in asked_for(exercises()):
        journal.append("exercise", id=id_, verdict="right", source=read(exercises()[id_]).solution)


def take_final(left_out: int = 0) -> None:
    """Take the final through the course's own functions, the first questions left out."""
    paper = sitting.open_paper(FINAL)
    sheet = sitting.begin(paper).open
    assert sheet is not None
    for place, one in enumerate(sheet.drawn):
        sheet = sitting.answer(paper, sheet, one, None if place < left_out else right_one(one))
