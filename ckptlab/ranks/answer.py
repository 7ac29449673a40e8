"""What a rank answers: a value, or what it raised, as text. Made on the rank, read by the parent; pure."""

import re
import sysconfig
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_NOT_THE_USERS = ("<frozen ", str(Path(__file__).parents[1]), *_INSTALLED)
MOST_CHARACTERS = 10_000  # of a traceback; an error may hold a tensor, and every rank may raise it
MOST_IN_A_LINE = 1_000
_WHERE_TORCH_WAS_BUILT = re.compile(r"\[/\S+\.(?:cc|cpp|h):\d+\] ")  # gloo begins its messages so


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception of a rank."""

    what: str  # "ValueError: bad shard"
    own_lines: str  # the traceback with the user's own lines only, where there are any
    all_lines: str
    at: float  # seconds of the machine's monotonic clock: which of several ranks was the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome of one task on one rank."""

    value: object = None
    raised: Raised | None = None


def describe_error(error: BaseException) -> Raised:
    """Describe an exception for another process."""
    try:
        message = str(error)
    except Exception:  # the user's own class may be broken too
        message = "its message cannot be shown"
    first_line = _WHERE_TORCH_WAS_BUILT.sub("", message[:MOST_CHARACTERS]).partition("\n")[0]
    described = traceback.TracebackException.from_exception(error)
    all_lines = _cut("".join(described.format()).rstrip(), MOST_CHARACTERS)
    _keep_own_lines(described)
    own_lines = _cut("".join(described.format()).rstrip(), MOST_CHARACTERS)
    return Raised(
        what=f"{type(error).__name__}: {_cut(first_line, MOST_IN_A_LINE)}".removesuffix(": "),
        own_lines=_WHERE_TORCH_WAS_BUILT.sub("", own_lines),
        all_lines=all_lines,
        at=time.monotonic(),
    )


def _cut(text: str, most: int) -> str:
    """Keep the beginning and the end, where a traceback says what was raised."""
    left_out = len(text) - most
    return f"{text[: most // 2]} ... {left_out:,} characters ... {text[-most // 2 :]}" if left_out > 0 else text


def _keep_own_lines(described: traceback.TracebackException) -> None:
    own = [frame for frame in described.stack if not frame.filename.startswith(_NOT_THE_USERS)]
    if own:
        described.stack = traceback.StackSummary.from_list(own)
    for linked in (described.__cause__, described.__context__):
        if linked is not None:
            _keep_own_lines(linked)
