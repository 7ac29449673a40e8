"""`ckptlab submit FILE`."""

from collections import Counter
from pathlib import Path

import click

from ckptlab.cli.door import Door, say
from ckptlab.course.grading import submit as submit_journal


@click.command(cls=Door)
@click.argument("file", type=click.Path(path_type=Path))
def submit(file: Path) -> int:
    """Write what you did in the course to FILE, to hand in; call it by your name, like ada.jsonl.

    It holds every attempt, right or wrong, with its source and time; your predictions; the hints that you asked for; the
    language that you chose. And the versions of ckptlab, of Python and of the exercises. Your instructor's program will run the
    answers. FILE's name says whose it is; no name, address, computer or key is put into it.
    """
    events = submit_journal(file)
    counts = Counter(event["kind"] for event in events)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    say(f"{file}: {len(events)} event{'s' if len(events) > 1 else ''} of your journal: {kinds}.")
    say("Every attempt, right or wrong, with its source and time; your predictions; hints you asked for; languages you chose.")
    say("The file's name says whose it is; nothing in it does, unless you wrote it there.")
    return 0
