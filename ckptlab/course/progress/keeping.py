"""Progress as a whole: shown, taken along, begun again, checked again."""

from collections.abc import Callable
from pathlib import Path

from ckptlab.course import content, journal
from ckptlab.course.exercise import read, run_answer
from ckptlab.course.progress.fold import fold
from ckptlab.course.progress.table import Table, make_table
from ckptlab.errors import UsageError

SAVED = "progress.jsonl"
MOST_BYTES = 64 << 20


class Progress:
    """What `progress` is in a notebook: `progress()`, `progress.save()`, `progress.load(file)`."""

    def __call__(self, tell: Callable[[str], None] = print) -> Table:
        """Return the table of all labs, to show."""
        names = [path.stem.replace("_", " ") for path in content.labs()]
        return make_table(names, list(content.exercises()), fold(journal.read(tell)))

    def save(self, file: str | Path = SAVED) -> None:
        """Write a copy of the journal beside the notebook, to download.

        Raises:
            UsageError: the file holds events that the journal does not; it is left as it is.
        """
        path = Path(file)
        events = journal.read()
        if path.exists() and _new(_read(path), events):
            raise UsageError(
                f'{file} holds progress that your journal does not: progress.load("{file}") takes it in, '
                f'or progress.save("another.jsonl") writes beside it'
            )
        path.write_bytes(journal.journal_file().read_bytes() if events else b"")
        print(f"Your progress is saved in {file} ({len(events)} events). In JupyterLab, download it from the list of files.")

    def load(self, file: str | Path = SAVED) -> None:
        """Take in the events of a saved journal that are not there yet."""
        new = _new(_read(Path(file)), journal.read())
        if new:
            journal.append_all(new)
        print(f"{len(new)} events of {file} are new and are in your journal now.")


def reset(lab: str) -> None:
    """Count a lab's exercises and predictions as untried; the journal keeps what was done."""
    if lab not in {path.stem[:2] for path in content.labs()} | {content.lab_of(id_) for id_ in content.exercises()}:
        raise UsageError(f'there is no lab {lab!r}; a lab is called by its two digits, as in reset("02")')
    journal.append("reset", lab=lab)
    print(f"Lab {lab} counts as untried.")


def recheck() -> None:
    """Run every right answer again, as it was given, and print what it is today."""
    facts = fold(journal.read())
    right = [id_ for id_ in content.exercises() if facts.tried(id_).state.startswith("right")]
    for id_ in right:
        print(run_answer(read(content.exercise_file(id_)), facts.tried(id_).source).text)
    if not right:
        print("No exercise is right yet.")


def _read(path: Path) -> list[journal.Event]:
    if not path.is_file():
        raise UsageError(f"there is no file {path}; in JupyterLab, upload it beside the notebook first")
    if path.stat().st_size > MOST_BYTES:
        raise UsageError(f"{path} has {path.stat().st_size:,} bytes; a saved journal is smaller")
    events, num_damaged = journal.parse(path.read_bytes())
    if num_damaged:
        print(f"{num_damaged} lines of {path} are damaged and left out.")
    return events


def _new(events: list[journal.Event], there: list[journal.Event]) -> list[journal.Event]:
    """Return the events that are not there, in order, each once."""
    new = []
    for event in events:
        if event not in there and event not in new:
            new.append(event)
    return new
