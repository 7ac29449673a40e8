"""Predictions: kept before a run, shown beside what happened."""

import json
from types import EllipsisType

from ckptlab.course import journal
from ckptlab.course.progress.fold import fold


def predict(id_: str, value: object) -> None:
    """Keep a prediction ("2.p1"); `...` in its place is none yet."""
    if isinstance(value, EllipsisType):
        print(f"{id_}: not predicted yet.")
        return
    journal.append("predict", id=id_, value=_plain(value))
    print(f"{id_}: you predict {value!r}.")


def outcome(id_: str, value: object) -> None:
    """Print what happened beside what was predicted."""
    predictions = fold(journal.read()).predictions
    found = _plain(value)
    if id_ not in predictions:
        print(f"{id_}: no prediction; it is {found!r}.")
    elif predictions[id_] == found:
        print(f"{id_}: as you predicted: {found!r}.")
    else:
        print(f"{id_}: you predicted {predictions[id_]!r}; it is {found!r}.")


def _plain(value: object) -> object:
    """Return the value as the journal gives it back: tuples and arrays as lists, what JSON does not know as its `repr`."""
    try:
        text = json.dumps(
            value, allow_nan=False, default=lambda other: other.tolist() if hasattr(other, "tolist") else repr(other)
        )
    except (TypeError, ValueError):
        return repr(value)
    plain: object = json.loads(text)
    return plain
