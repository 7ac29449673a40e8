"""Completion inside `%%ranks`: the names are rank 0's, asked for only while it has nothing else to do. Never by jedi.

Rank 0 imports this module to run `names_like`, so that IPython is imported where the kernel needs it only.
"""

import rlcompleter
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ckptlab.errors import WorldError
from ckptlab.ranks import World

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

MOST = 2000


def rank_names(shell: "InteractiveShell") -> "Callable[[CompletionContext], SimpleMatcherResult]":
    """Make the matcher that IPython asks what can stand where the cursor is."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier="ckptlab.ranks", priority=1000.0)  # type: ignore[untyped-decorator]  # IPython's
    def match(context: "CompletionContext") -> "SimpleMatcherResult":
        world = shell.user_ns.get("world")
        if not _is_for_ranks(context.full_text) or not isinstance(world, World) or not world.is_idle(0):
            return {"completions": []}
        try:
            (names,) = cast(list[list[str]], world.run(names_like, context.token, ranks=[0]))
        except WorldError:
            return {"completions": []}
        return {"completions": [SimpleCompletion(text=name) for name in names], "suppress": True}

    return cast("Callable[[CompletionContext], SimpleMatcherResult]", match)


def names_like(text: str) -> list[str]:
    """Return the names on this rank that begin with `text`, which may have dots in it. A rank runs it."""
    completer = rlcompleter.Completer(vars(sys.modules["__main__"]))
    found = (completer.complete(text, number) for number in range(MOST))
    return [name.rstrip("() ") for name in iter(found.__next__, None)] if text else []


def _is_for_ranks(cell: str) -> bool:
    lines = [line for line in cell.splitlines() if line.strip() and not line.startswith("#")]
    return bool(lines) and lines[0].split()[0] == "%%ranks"
