"""What a learner is told at a quiz, in the widget and in the terminal alike. Pure: everything becomes messages here."""

from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction

from ckptlab.course.languages import Message, say
from ckptlab.course.quiz.attempts import Answer, Sheet, Standing
from ckptlab.course.quiz.draw import FINAL, Drawn, Paper
from ckptlab.course.quiz.grade import Mark
from ckptlab.course.quiz.headings import headings
from ckptlab.course.quiz.passing import FINAL_SCORE, Result


def title(paper: Paper) -> str:
    """Name a quiz."""
    if paper.name == FINAL:
        return say("quiz.title-final", "The final quiz")
    return say("quiz.title", "Quiz {name}: {title}", name=paper.name, title=Message(f"{paper.name}.title", paper.title))


def status(sheet: Sheet, index: int) -> str:
    """Say which question this is, from number 0, and how many are right."""
    text = "Question {number} of {total}, {right} right"
    return say("quiz.status", text, number=index + 1, total=len(sheet.drawn), right=sheet.num_right)


def ask(drawn: Drawn) -> Message:
    """Return the question."""
    question = drawn.question
    if question.type == "exercise" and not question.ask:
        text = "Exercise {id}: solve it in lab {lab}, if you have not yet. Your answer is run again here."
        return Message("quiz.ask-exercise", text, {"id": question.exercise, "lab": question.bank})
    return drawn.message("ask", question.ask)


def outcome(mark: Mark) -> str:
    """Say right or not yet."""
    if mark.is_right:
        return say("quiz.right", "Right.")
    if mark.credit:
        return say("quiz.partly", "Partly right, {credit} of a point.", credit=mark.credit)
    return say("quiz.not-yet", "Not yet.")


def earlier() -> str:
    """Say that another answer counts."""
    return say("quiz.earlier", "You have answered this in another notebook or terminal before; that answer counts.")


def feedback(drawn: Drawn, answer: Answer) -> Iterator[Message]:
    """Say why, and where to read again."""
    yield from answer.mark.because
    lab, _, slug = drawn.question.read.partition("#")
    values = {"lab": lab, "heading": headings(lab).get(slug, slug)}
    if answer.mark.is_right:
        yield Message("quiz.more", "More on it: lab {lab}, “{heading}”.", values)
    else:
        yield Message("quiz.read", "Read again: lab {lab}, “{heading}”.", values)


def finished(paper: Paper, sheet: Sheet) -> str:
    """Say what an attempt has given."""
    text = "All {total} questions are answered: {points} of {total} points, {percent} %."
    return say("quiz.finished", text, total=len(sheet.drawn), points=points(sheet.points), percent=_percent(sheet.score))


def introduction(paper: Paper, standing: Standing) -> Iterator[str]:
    """Say what is to come, before an attempt."""
    if standing.is_outdated:
        yield say("quiz.outdated", "The questions have changed since your last attempt, which does not count any more.")
    if best := standing.best:
        yield say("quiz.best", "Best so far: {points} of {total} points.", points=points(best.points), total=len(best.drawn))
    if standing.open:
        yield say("quiz.go-on", "You go on where you stopped.")
    elif standing.wait:
        yield say("quiz.wait", "The next attempt at the final may begin in {minutes} min.", minutes=_minutes(standing.wait))
    else:
        text = "{total} questions. Each answer is explained at once, and the first one counts."
        yield say("quiz.begin", text, total=paper.num_questions)


def summary(paper: Paper, standing: Standing) -> str:
    """Say the same in one line, for a notebook that is opened again."""
    return " ".join((f"{title(paper)}.", *introduction(paper, standing)))


def course(result: Result) -> str:
    """Say whether the course is passed, and what is missing."""
    if result.has_passed:
        return say("quiz.passed", "You have passed the course.")
    reached = _percent(result.score) if result.score is not None else 0
    parts = [say("quiz.final", "{wanted} % in the final (you have {reached} %)", wanted=_percent(FINAL_SCORE), reached=reached)]
    if result.score is not None and result.score >= FINAL_SCORE:
        parts = []
    if result.missing:
        parts.append(say("quiz.exercises", "the exercises {missing}", missing=", ".join(result.missing)))
    return say("quiz.missing", "To pass the course: {parts}.", parts=", ".join(parts))


def report(paper: Paper, drawn: Drawn) -> str:
    """Give the text of a report on a question, to paste wherever the learner likes. English: the authors read it."""
    (version,) = (bank.version for bank in paper.banks if bank.name == drawn.question.bank)
    head = f"Question {'.'.join(drawn.key)} (bank version {version}, variant {drawn.variant + 1})"
    question = drawn.question
    pairs = [f"{left} | {right}" for left, right in question.pairs]
    texts = [question.ask, *(option.text for option in question.options), *question.items, *pairs]
    lines = [drawn.message("report", text) for text in texts if text]
    return "\n".join((head, *(say("report", line.text, **line.values) for line in lines), "What is wrong with it: "))


def points(number: Fraction) -> str:
    """Write points with at most two decimals."""
    return f"{float(number):.2f}".rstrip("0").rstrip(".")


def _percent(score: Fraction) -> int:
    return int(score * 100)  # rounded down: 79.9 % is not 80


def _minutes(wait: timedelta) -> int:
    return -(-int(wait.total_seconds()) // 60) or 1
