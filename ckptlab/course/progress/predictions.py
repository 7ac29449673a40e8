"""Predictions: kept before a run, shown beside what happened."""

import json
from types import EllipsisType

from ckptlab.course import journal
from ckptlab.course.languages import say
from ckptlab.course.progress.fold import fold


def predict(id_: str, value: object) -> None:
    """Keep a prediction ("2.p1"); `...` in its place is none yet."""
    if isinstance(value, EllipsisType):
        print(say("predict.none", "{id}: not predicted yet.", id=id_))
        return
    journal.append("predict", id=id_, value=_plain(value))
    print(say("predict.kept", "{id}: you predict {value}.", id=id_, value=repr(value)))


def outcome(id_: str, value: object) -> None:
    """Print what happened beside what was predicted."""
    predictions = fold(journal.read()).predictions
    found = _plain(value)
    if id_ not in predictions:
        print(say("predict.missing", "{id}: no prediction; it is {found}.", id=id_, found=repr(found)))
    elif predictions[id_] == found:
        print(say("predict.right", "{id}: as you predicted: {found}.", id=id_, found=repr(found)))
    else:
        text = "{id}: you predicted {value}; it is {found}."
        print(say("predict.other", text, id=id_, value=repr(predictions[id_]), found=repr(found)))


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
