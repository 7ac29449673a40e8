"""What all commands share: how errors end, and how answers are printed."""

import json
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

import click

from ckptlab.errors import CkptlabError, StepError, StoreError, UsageError
from ckptlab.storage import Place, place

READER_GONE = 141  # 128 + SIGPIPE, as a shell has it

json_option = click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for a program.")


def to_place(ctx: click.Context, param: click.Parameter, value: str) -> Place:
    """Take an argument as a path on disk, or as an address like s3://bucket/runs/mine: a click callback."""
    try:
        return place(value)
    except UsageError as error:
        raise click.BadParameter(str(error), ctx, param) from error


class Door(click.Command):
    """A command whose function returns its exit code; an error is one line, and its traceback is shown by `--debug`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(click.Option(["--debug"], is_flag=True, help="Show the traceback of an error."))

    def invoke(self, ctx: click.Context) -> int:
        """Run the function; 2 when what it was to look at is not there, 1 when it is wrong."""
        debug = ctx.params.pop("debug")
        try:
            code: int = super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the last flush complains
            return READER_GONE
        except (CkptlabError, OSError) as error:
            if debug:
                traceback.print_exc()
            say(f"error: {_message(error)}", err=True)
            return 2 if isinstance(error, StepError | StoreError | UsageError | OSError) else 1
        return code


class DoorGroup(Door, click.Group):
    """Such a command that has further commands below it."""


def say(text: str, *, err: bool = False) -> None:
    """Print one line; what a terminal would obey instead of show is escaped, because names come from files."""
    click.echo("".join(char if char.isprintable() else repr(char)[1:-1] for char in text), err=err)


def say_json(value: object) -> None:
    """Print a document."""
    click.echo(json.dumps(value, indent=1))


def say_table(rows: Iterable[Sequence[object]], indent: str = "") -> None:
    """Print rows as columns as wide as their widest cell."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        say(indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _message(error: CkptlabError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    first, *more = str(error).splitlines() or [type(error).__name__]
    return f"{first} (--debug shows more)" if more else first
