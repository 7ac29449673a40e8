"""`ckptlab progress`, `ckptlab progress save FILE`, `ckptlab progress load FILE`."""

from pathlib import Path

import click

from ckptlab.cli.door import Door, json_option, say, say_json
from ckptlab.course.choice import take_choice
from ckptlab.course.progress import progress as course_progress


@click.command(cls=Door)
@click.argument("action", type=click.Choice(["save", "load"]), required=False)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@json_option
def progress(action: str | None, file: Path | None, as_json: bool) -> int:
    """Show how far you are in the course, save a copy of your progress in FILE, or load one."""
    take_choice()
    if (action is None) != (file is None):
        raise click.UsageError("'save' and 'load' need a FILE.")
    if action == "save" and file is not None:
        course_progress.save(file)
    elif file is not None:
        course_progress.load(file)
    else:
        table = course_progress(tell=lambda text: say(text, err=True))
        if as_json:
            say_json(table.to_json())
        else:
            for line in repr(table).splitlines():
                say(line)
    return 0
