"""All texts that the course says to learners, found without saying them: in calls of `say` and `Message`, and in data."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ckptlab.course import content
from ckptlab.course.certificate.page import PARTS
from ckptlab.course.exercise import read as read_exercise
from ckptlab.course.quiz.bank import Question, bank_files
from ckptlab.course.quiz.bank import read as read_bank

ROOT = content.LABS.parent
PACKAGE = ROOT / "ckptlab"
WANTED_FORM = ("quiz/grade.py", "quiz/arithmetic.py")  # their errors tell a learner what an answer should look like
ELSEWHERE = {  # contexts whose texts are data, which is read as such below, or are for authors
    "{}.title", "{}.{}.{}", "exercise.{}.title", "exercise.{}.{}", "exercise.{}.hint.{}", "verify.{}", "quiz.wanted-form",
    "certificate.fault", "report",
}  # fmt: skip


class Entry(NamedTuple):
    """A text to translate, with where it stands and what translators should know."""

    context: str
    text: str
    place: str
    note: str = ""


def entries() -> list[Entry]:
    """Return all texts that have words, in the order of translating: short words first, then questions, then exercises."""
    found = [*_of_code(), *_of_page(), *_of_banks(), *_of_exercises()]
    return list({(one.context, one.text): one for one in found if has_words(one.text)}.values())


def has_words(text: str) -> bool:
    """Whether anything is left of a text without its {names}, its code and its blocks of output."""
    return bool(re.search(r"[A-Za-z]", re.sub(r"\{\w+\}", "", "".join(re.split(r"```.*?```|`[^`]+`", text, flags=re.DOTALL)))))


def _of_code() -> Iterator[Entry]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path != PACKAGE / "course/languages.py" and "ckptlab.course.languages" in (text := path.read_text(encoding="utf-8")):
            place, tree = path.relative_to(ROOT).as_posix(), ast.parse(text)
            callees = {
                name.asname or name.name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and node.module == "ckptlab.course.languages"
                for name in node.names
                if name.name in ("say", "Message")
            }
            for scope in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
                for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
                    if isinstance(call.func, ast.Name) and call.func.id in callees:
                        yield from (Entry(*one, place) for one in _said(call, scope, tree, place))
    for name in WANTED_FORM:
        path = PACKAGE / "course" / name
        for text in re.findall(r'raise UsageError\("(.+?)"\)', path.read_text(encoding="utf-8")):
            yield Entry("quiz.wanted-form", text, path.relative_to(ROOT).as_posix())


def _said(call: ast.Call, scope: ast.FunctionDef, tree: ast.Module, place: str) -> Iterator[tuple[str, str]]:
    """Yield contexts and texts of a call; one that cannot be found in the source is an error, for nobody could translate it."""
    context, text = call.args[:2]
    pattern = _pattern(context)
    if pattern in ELSEWHERE:
        return
    if isinstance(text, ast.Subscript) and isinstance(context, ast.JoinedStr):  # one of a table, by the key in its context
        (slot,) = (part for part in context.values if isinstance(part, ast.FormattedValue))
        table = next(iter(_assigned(ast.unparse(text.value), tree.body)), None)
        if isinstance(table, ast.Dict) and ast.dump(slot.value) == ast.dump(text.slice):
            for key, value in ast.literal_eval(table).items():
                yield pattern.replace("{}", key), value
            return
    texts = list(_texts(text, call, scope, tree))
    if not texts or "{}" in pattern:
        raise ValueError(f"{place}:{call.lineno}: this text cannot be collected; write it and its context as constants")
    yield from ((pattern, one) for one in texts)


def _pattern(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=parts):
            return "".join("{}" if isinstance(part, ast.FormattedValue) else _pattern(part) for part in parts)
    return "{}"


def _texts(node: ast.expr, call: ast.Call, scope: ast.FunctionDef, tree: ast.Module) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(value)):
            yield value
        case ast.IfExp(body=one, orelse=other):
            yield from (text for part in (one, other) for text in _texts(part, call, scope, tree))
        case ast.Name():
            before = [one for one in ast.walk(scope) if isinstance(one, ast.stmt) and one.lineno <= call.lineno]
            for value in _assigned(node.id, sorted(before, key=lambda one: one.lineno)) or _assigned(node.id, tree.body):
                yield from _texts(value, call, scope, tree)


def _assigned(name: str, statements: Sequence[ast.stmt]) -> list[ast.expr]:
    """Return what a name can be after these statements: all that was assigned since it was assigned for certain."""
    values: list[ast.expr] = []
    for one in reversed(statements):
        if isinstance(one, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in one.targets):
            values.insert(0, one.value)
            if one.col_offset <= statements[-1].col_offset:  # not in a branch that may have been left out
                break
    return values


def _of_page() -> Iterator[Entry]:
    path = PARTS / "texts.json"
    for name, text in json.loads(path.read_text(encoding="utf-8")).items():
        yield Entry(f"verify.{name}", text, path.relative_to(ROOT).as_posix())


def _of_banks() -> Iterator[Entry]:
    for bank in map(read_bank, bank_files().values()):
        file = f"quizzes/{bank.name}.yaml"
        yield Entry(f"{bank.name}.title", bank.title, file)
        for question in bank.questions:
            for part, text, note in _of_question(question):
                yield Entry(f"{bank.name}.{question.id}.{part}", text, f"{file}:{question.id}", note)


def _of_question(question: Question) -> Iterator[tuple[str, str, str]]:
    yield "ask", question.ask, question.type
    for option in question.options:
        yield option.id, option.text, "right" if option.right else "not right"
        yield f"{option.id}.because", option.because, ""
    for number, item in enumerate(question.items):
        yield f"items.{number}", item, ""
    for number, (left, right) in enumerate(question.pairs):
        yield f"pairs.{number}.left", left, ""
        yield f"pairs.{number}.right", right, ""
    for number, near in enumerate(question.near):
        yield f"near.{number}.because", near.because, f"to who answered {near.value}"
    yield "because", question.because, ""


def _of_exercises() -> Iterator[Entry]:
    for id_, path in content.exercises().items():
        exercise, place = read_exercise(path), path.relative_to(ROOT).as_posix()
        yield Entry(f"exercise.{id_}.title", exercise.title, place)
        for number, hint in enumerate(exercise.hints, start=1):
            yield Entry(f"exercise.{id_}.hint.{number}", hint, place)
        for name, meaning in exercise.wrong.items():
            yield Entry(f"exercise.{id_}.{name}", meaning, place)
