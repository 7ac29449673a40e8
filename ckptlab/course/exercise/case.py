"""`Case`: one thing that a check asks of an answer, and what the answer gave. On a rank; pure."""

import reprlib
import sys
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 24
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 200
_ATOMS = (bool, int, float, complex, str, bytes, NoneType)
_MOST_ITEMS = 10_000  # of a list that is gone through; what a longer one holds is not made plain


@dataclass(frozen=True, slots=True)
class AnswerRaised:
    """What the learner's function raised instead of giving a value; equal when type and message are."""

    what: str  # "IndexError: list index out of range"
    own_lines: str = field(default="", compare=False)  # the traceback with the learner's lines only
    untried: bool = field(default=False, compare=False)  # the stub's own NotImplementedError
    no_answer: bool = field(default=False, compare=False)  # a collective that waited in vain, or lost a rank


class Case:
    """Ask whether what an answer gave is what it should give.

    Args:
        found: what the answer gave. Tensors and arrays count as the lists of their numbers.
        expected: what it should give, from torch or the file system, never from the solution.
        where: the case in words: "7 rows over 2 ranks".
        cost: what the answer needed (files opened, bytes read), where that is judged too.
        budget: how much it may need; more is "right, but".
    """

    __slots__ = ("budget", "cost", "expected", "found", "where")

    def __init__(
        self, found: object, expected: object, *, where: str, cost: float | None = None, budget: float | None = None
    ) -> None:
        self.found = plain(found)  # now: the answer may change later what it gave
        self.expected = plain(expected)
        self.where = where
        self.cost = cost
        self.budget = budget

    @property
    def is_right(self) -> bool:
        """Whether the answer gave what was expected, whatever it cost."""
        return are_equal(self.found, self.expected)

    @property
    def is_within_budget(self) -> bool:
        """Whether the answer needed no more than it may."""
        return self.cost is None or self.budget is None or self.cost <= self.budget


def plain(value: object) -> object:
    """Copy a value so that it can be compared and kept: tensors and arrays become lists of numbers."""
    if isinstance(value, AnswerRaised):
        return value
    if _is_of_a_library(value):
        to_local = getattr(value, "to_local", None)  # a DTensor: this rank's part
        to_list = getattr(to_local() if callable(to_local) else value, "tolist", None)
        if callable(to_list):
            return to_list()
    if type(value) in (dict, list, tuple) and len(value) > _MOST_ITEMS:  # type: ignore[arg-type]  # not narrowed by `in`
        return value
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        items = [plain(item) for item in value]  # type: ignore[attr-defined]  # mypy does not narrow by `type(…) in`
        return items if type(value) is list else tuple(items)
    return value


def disarmed(value: object) -> object:
    """Give lists, tuples and dicts proper in place of an answer's own classes of them, which could lie to the check."""
    if isinstance(value, list) and type(value) is not list:
        value = list(list.__iter__(value))
    if isinstance(value, tuple) and type(value) is not tuple:
        value = tuple(tuple.__iter__(value))
    if isinstance(value, dict) and type(value) is not dict:
        value = dict(dict.items(value))
    if type(value) not in (dict, list, tuple) or len(value) > _MOST_ITEMS:  # type: ignore[arg-type]  # not narrowed by `in`
        return value
    if type(value) is dict:
        new: Any = {key: disarmed(item) for key, item in value.items()}
        return new if any(new[key] is not item for key, item in value.items()) else value
    items = [disarmed(item) for item in value]  # type: ignore[attr-defined]  # as above
    is_same = all(item is own for item, own in zip(items, value, strict=True))  # type: ignore[call-overload]  # as above
    return value if is_same else items if type(value) is list else tuple(items)


def are_equal(found: object, expected: object) -> bool:
    """Compare by what is expected; what an answer's own class says of equality counts for nothing, nor does what raises."""
    try:
        return _are_equal(found, expected)
    except Exception:
        return False


def show(value: object) -> str:
    """Return a value's `repr`, of bounded length."""
    try:
        return _SHORT.repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def _are_equal(found: object, expected: object) -> bool:
    if type(found) is type(expected) and type(found) in _ATOMS:  # most leaves, fast
        return bool(found == expected)
    if isinstance(found, list) and isinstance(expected, list):
        return list.__len__(found) == len(expected) and all(map(_are_equal, list.__iter__(found), expected))
    if isinstance(found, tuple) and isinstance(expected, tuple):
        return tuple.__len__(found) == len(expected) and all(map(_are_equal, tuple.__iter__(found), expected))
    if isinstance(found, dict) and isinstance(expected, dict):
        return dict.__len__(found) == len(expected) and all(
            dict.__contains__(found, key) and _are_equal(dict.__getitem__(found, key), item) for key, item in expected.items()
        )
    found = plain(found)  # of a long list the items are not made plain before
    kind: Any = type(expected)
    return kind.__eq__(expected, found) is True or (type(found) in _ATOMS and bool(found == expected))  # 2.0 is 2


def _is_of_a_library(value: object) -> bool:
    """Whether its very class is torch's or NumPy's; one that an answer has made may only call itself so."""
    kind = type(value)
    module = str(kind.__module__)
    named = vars(sys.modules.get(module, object)).get(kind.__name__)
    return module.partition(".")[0] in ("torch", "numpy", "ml_dtypes") and named is kind
