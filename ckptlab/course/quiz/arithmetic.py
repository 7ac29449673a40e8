"""Numbers: those of a bank, which may hold `+ - * /`, and those that a learner writes. Exact, and never by `eval`. Pure."""

import ast
import re
import unicodedata
from fractions import Fraction

from ckptlab.errors import UsageError

MOST_CHARACTERS = 200
_OPERATORS = {
    ast.Add: Fraction.__add__,
    ast.Sub: Fraction.__sub__,
    ast.Mult: Fraction.__mul__,
    ast.Div: Fraction.__truediv__,
}
_WRITTEN = re.compile(r"([+-]?\d[\d,. _]*(?:e[+-]?\d{1,3})?)\s*(\D*)", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


def number(text: str) -> Fraction:
    """Work out `7 * 4 / 8`: numbers, brackets and `+ - * /`.

    Raises:
        UsageError: there is anything else in it.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"{text[:40]!r}…: a number of at most {MOST_CHARACTERS} characters is wanted")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        raise UsageError(f"{text!r} is no number; numbers, brackets and + - * / may stand in it") from None


def readings(text: str) -> tuple[set[Fraction], str]:
    """Read a number as people write it (`10.5`, `10,5`, `1 234.5`, `1e9 GB`); return what it can mean, and the unit.

    `1,234` is read both ways, for a comma is a decimal comma to one learner and not to another.

    Raises:
        UsageError: no number stands first.
    """
    plain = unicodedata.normalize("NFKC", text).replace("\N{MINUS SIGN}", "-").strip()
    match = _WRITTEN.fullmatch(plain) if len(plain) <= MOST_CHARACTERS else None
    found = {Fraction(one) for one in _spellings(match[1]) if _NUMBER.fullmatch(one)} if match else set()
    if not match or not found:
        raise UsageError("write a number, as in 10.5 or 10,5")
    return found, match[2].strip()


def _spellings(written: str) -> list[str]:
    joined = re.sub(r"[ _]", "", written)
    grouped = r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?"
    thousands = [joined.replace(",", "")] if re.fullmatch(grouped, joined, re.ASCII) else []
    decimal = [joined.replace(",", ".")] if joined.count(",") == 1 and "." not in joined else []
    return [*thousands, *decimal, joined]


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return Fraction(str(value))  # 0.1 is a tenth; infinity is refused
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](_value(left), _value(right))
    raise ValueError
