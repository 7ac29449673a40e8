"""How the course changes a notebook's kernel: two magics, comments above them, completion, and errors told in words."""

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import cast

from IPython.core.completer import IPCompleter
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import output_can_be_silenced

from ckptlab.course.magics.completion import rank_names
from ckptlab.course.magics.exercise import run_exercise
from ckptlab.course.magics.ranks import run_ranks
from ckptlab.errors import UsageError, WorldError

MAGICS = ("%%ranks", "%%exercise")


def install(shell: InteractiveShell) -> None:
    """Install all of it, once."""
    if magic_first in shell.input_transformers_cleanup:
        return
    shell.input_transformers_cleanup.append(magic_first)
    ranks = output_can_be_silenced(lambda line, cell: run_ranks(shell, line, cell))  # by a last ";"
    register = cast(Callable[..., None], shell.register_magic_function)  # IPython's types forget an argument
    register(ranks, "cell", "ranks")
    register(lambda line, cell: run_exercise(shell, line, cell), "cell", "exercise")
    shell.set_custom_exc((WorldError, UsageError), tell_in_words)  # type: ignore[no-untyped-call]  # IPython's
    completer = shell.Completer
    assert isinstance(completer, IPCompleter), "IPython's own"
    completer.use_jedi = False  # it would load torch into the kernel to complete "torch."
    completer.custom_matchers.append(rank_names(shell))


def magic_first(lines: list[str]) -> list[str]:
    """Let comments and empty lines stand above our magics: IPython knows a magic in the first line only."""
    for number, line in enumerate(lines):
        if line.startswith(MAGICS):
            return [line, *lines[:number], *lines[number + 1 :]]
        if line.strip() and not line.startswith("#"):
            break
    return lines


def tell_in_words(
    shell: InteractiveShell, kind: type[BaseException], error: BaseException, _: TracebackType, tb_offset: int | None = None
) -> list[str]:
    """Show an error's message alone: it has the learner's own lines in it, and the kernel's lead nowhere."""
    lines = str(error).splitlines()
    with suppress(KeyboardInterrupt):  # IPython would take this function away for good
        shell._showtraceback(kind, error, lines)
    return lines
