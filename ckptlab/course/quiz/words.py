"""What a learner is told at a quiz, in the widget and in the terminal alike. Pure: everything becomes messages here."""

from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction

from ckptlab.course.languages import Message, say, tell
from ckptlab.course.quiz.attempts import Answer, Sheet, Standing
from ckptlab.course.quiz.draw import FINAL, Drawn, Paper
from ckptlab.course.quiz.grade import Mark
from ckptlab.course.quiz.headings import headings
from ckptlab.course.quiz.passing import FINAL_SCORE, Result


def title(paper: Paper) -> Message:
    """Name a quiz."""
    if paper.name == FINAL:
        return Message("quiz.title-final", "The final quiz")
    return Message("quiz.title", "Quiz {name}: {title}", {"name": paper.name, "title": bare_title(paper)})


def bare_title(paper: Paper) -> Message:
    """Name a quiz without its number, as in a table."""
    if paper.name == FINAL:
        return Message("quiz.final-title", "Final quiz")
    return Message(f"{paper.name}.title", paper.title)


def status(sheet: Sheet, index: int) -> Message:
    """Say which question this is, from number 0, and how many are right."""
    text = "Question {number} of {total}, {right} right"
    return Message("quiz.status", text, {"number": index + 1, "total": len(sheet.drawn), "right": sheet.num_right})


def ask(drawn: Drawn) -> Message:
    """Return the question."""
    question = drawn.question
    if question.type == "exercise" and not question.ask:
        text = "Exercise {id}: solve it in lab {lab}, if you have not yet. Your answer is run again here."
        return Message("quiz.ask-exercise", text, {"id": question.exercise, "lab": question.bank})
    return drawn.message("ask", question.ask)


def outcome(mark: Mark) -> Message:
    """Say right or not yet."""
    if mark.is_right:
        return Message("quiz.right", "Right.")
    if mark.credit:
        return Message("quiz.partly", "Partly right, {credit} of a point.", {"credit": mark.credit})
    return Message("quiz.not-yet", "Not yet.")


def earlier() -> Message:
    """Say that another answer counts."""
    return Message("quiz.earlier", "You have answered this in another notebook or terminal before; that answer counts.")


def gone() -> Message:
    """Say that there is no attempt any more."""
    return Message("quiz.gone", "This attempt was reset meanwhile. Begin again.")


def feedback(drawn: Drawn, answer: Answer) -> Iterator[Message]:
    """Say why, and where to read again."""
    yield from answer.mark.because
    lab, _, slug = drawn.question.read.partition("#")
    values = {"lab": lab, "heading": headings(lab).get(slug, slug)}
    if answer.mark.is_right:
        yield Message("quiz.more", "More on it: lab {lab}, “{heading}”.", values)
    else:
        yield Message("quiz.read", "Read again: lab {lab}, “{heading}”.", values)


def finished(paper: Paper, sheet: Sheet) -> Message:
    """Say what an attempt has given."""
    text = "All {total} questions are answered: {points} of {total} points, {percent} %."
    values = {"total": len(sheet.drawn), "points": points(sheet.points), "percent": _percent(sheet.score)}
    return Message("quiz.finished", text, values)


def introduction(paper: Paper, standing: Standing) -> Iterator[Message]:
    """Say what is to come, before an attempt."""
    if standing.is_outdated:
        yield Message("quiz.outdated", "The questions have changed since your last attempt, which does not count any more.")
    if best := standing.best:
        values = {"points": points(best.points), "total": len(best.drawn)}
        yield Message("quiz.best", "Best so far: {points} of {total} points.", values)
    if standing.open:
        yield Message("quiz.go-on", "You go on where you stopped.")
    elif standing.wait:
        text = "The next attempt at the final may begin in {minutes} min."
        yield Message("quiz.wait", text, {"minutes": _minutes(standing.wait)})
    else:
        text = "{total} questions. Each answer is explained at once, and the first one counts."
        yield Message("quiz.begin", text, {"total": paper.num_questions})


def summary(paper: Paper, standing: Standing) -> str:
    """Say the same in one line, for a notebook that is opened again."""
    return " ".join((f"{tell(title(paper))}.", *(str(tell(message)) for message in introduction(paper, standing))))


def running() -> Message:
    """Say what takes a while."""
    return Message("certificate.running", "Your answers are graded again, and your exercises run again …")


def course(result: Result) -> Message:
    """Say whether the course is passed, and what is missing."""
    if result.has_passed:
        return Message("quiz.passed", "You have passed the course.")
    reached = _percent(result.score) if result.score is not None else 0
    values = {"wanted": _percent(FINAL_SCORE), "reached": reached, "missing": ", ".join(result.missing)}
    if result.score is not None and result.score >= FINAL_SCORE:
        return Message("quiz.missing-exercises", "To pass the course: the exercises {missing}.", values)
    if not result.missing:
        return Message("quiz.missing-final", "To pass the course: {wanted} % in the final (you have {reached} %).", values)
    text = "To pass the course: {wanted} % in the final (you have {reached} %), the exercises {missing}."
    return Message("quiz.missing-both", text, values)


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
