"""`%%ranks`: the cell runs on the ranks of the notebook's `world`."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from IPython.core.interactiveshell import InteractiveShell

from ckptlab.course.magics.exercise import in_words
from ckptlab.errors import UsageError, WorldError
from ckptlab.ranks import World
from ckptlab.ranks.verdict import name_ranks

MOST_SHOWN = 10_000  # characters of one rank's value
USAGE = "write %%ranks, %%ranks 0,2 (these ranks only) or %%ranks --to NAME (the values into a variable)"


class ByRank(list[object]):
    """Values by rank; shows them a line a rank, equal ones in one."""

    def __init__(self, values: Sequence[object], ranks: Sequence[int]) -> None:
        super().__init__(values)
        self._ranks = tuple(ranks)

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        shown = [_short(repr(value)) for value in self]
        for text, group in groupby(range(len(shown)), key=shown.__getitem__):
            ranks = [self._ranks[index] for index in group]
            start = f"{name_ranks(ranks)}: "
            yield start + text.replace("\n", "\n" + " " * len(start))


def run_ranks(shell: InteractiveShell, line: str, cell: str) -> ByRank | None:
    """Run a cell on all ranks or on those named; its value is what the ranks give, where one gives any."""
    ranks, variable = _read(line)
    world = shell.user_ns.get("world")
    if not isinstance(world, World):
        raise UsageError("%%ranks runs on the notebook's variable `world`, which is no World; make one: world = World(2)")
    chosen = list(range(world.num_ranks)) if ranks is None else ranks
    try:
        values = ByRank(world.run(f"\n{cell}", ranks=chosen), chosen)  # so that the lines count as in the cell
    except KeyboardInterrupt:
        raise WorldError("interrupted: the ranks have stopped what they did") from None
    except SyntaxError as error:
        raise in_words(error) from None
    if variable:
        shell.user_ns[variable] = values
    return None if variable or all(value is None for value in values) else values


def _read(line: str) -> tuple[list[int] | None, str | None]:
    match = re.fullmatch(r"\s*(\d+(?:[\s,]+\d+)*)?\s*(?:--to\s+([^\W\d]\w*))?\s*", line)
    if not match:
        raise UsageError(f"%%ranks {line.strip()}: {USAGE}")
    return [int(number) for number in re.findall(r"\d+", match[1])] if match[1] else None, match[2]


def _short(text: str) -> str:
    left_out = len(text) - MOST_SHOWN
    return f"{text[:MOST_SHOWN]} … {left_out:,} more characters" if left_out > 0 else text
