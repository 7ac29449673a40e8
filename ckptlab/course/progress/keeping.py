"""Progress as a whole: shown, taken along, begun again, checked again."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from ckptlab.course import content, journal
from ckptlab.course.choice import take_choice
from ckptlab.course.exercise import read, run_answer
from ckptlab.course.progress import own_key
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
        """Write a copy of the journal beside the notebook, to download, and into it the key of your certificates.

        Raises:
            UsageError: the file holds what the journal does not; it is left as it is.
        """
        path = Path(file)
        key = own_key.to_event()
        events = [*journal.read(), *key]
        if path.exists():
            _refuse_to_lose(path, events)
        replace_file(path.resolve(), journal.to_lines(events))  # a link stays one
        num_events = len(events) - len(key)
        print(f"Your progress is saved in {file} ({num_events} events). In JupyterLab, download it from the list of files.")
        if key:
            print(f"{file} also holds the key of your certificates: keep it to yourself. To hand in: ckptlab submit NAME.jsonl")

    def load(self, file: str | Path = SAVED) -> None:
        """Take in the events of a saved journal that are not there yet, and its certificate key where there is none.

        recheck(), the final and certificate() run the answers in it; load only files that you saved.
        """
        saved, num_damaged = _read(Path(file))
        if num_damaged:
            print(f"{num_damaged} lines of {file} are damaged and left out.")
        new = [event for event in new_events(saved, journal.read()) if event["kind"] != own_key.KIND]
        if new:
            journal.append_all(new)
            take_choice()
        print(f"{len(new)} events of {file} are new and are in your journal now.")
        if (is_restored := own_key.restore(saved)) is not None:
            other = f"{file} holds another key of certificates than yours, which stays: {own_key.key_file()}"
            print("The key of your certificates is there again." if is_restored else other)
        if num_answers := sum(tried.state.startswith("right") for tried in fold(new).exercises.values()):
            answers = f"{num_answers} answer{'s' if num_answers > 1 else ''}"
            print(f"recheck(), the final and certificate() run the {answers} in it; load only files that you saved.")


def reset(lab: str) -> None:
    """Count a lab's exercises and predictions as untried; the journal keeps what was done."""
    if lab not in {path.stem[:2] for path in content.labs()}:
        raise UsageError(f'there is no lab {lab!r}; a lab is called by its two digits, as in reset("02")')
    journal.append("reset", lab=lab)
    print(f"Lab {lab} counts as untried.")


def recheck() -> None:
    """Run every right answer again, as it was given, and print what it is today.

    Of a file that was loaded, this runs the answers in it; load only files that you saved.
    """
    facts = fold(journal.read())
    right = [id_ for id_ in content.exercises() if facts.tried(id_).state.startswith("right")]
    for id_ in right:
        try:
            print(run_answer(read(content.exercise_file(id_)), facts.tried(id_).source).text)
        except (SyntaxError, UsageError) as error:  # kept when the exercise was another
            print(f"{id_}: the answer that was right does not run any more: {error}")
    if not right:
        print("No exercise is right yet.")


def _refuse_to_lose(path: Path, events: list[journal.Event]) -> None:
    saved, num_damaged = _read(path)
    beside = 'progress.save("another.jsonl") writes beside it'
    if num_damaged:
        raise UsageError(f"{path} has {num_damaged} lines that are no progress, and is left as it is: {beside}")
    if new_events(saved, events):
        raise UsageError(f'{path} holds progress that your journal does not: progress.load("{path}") takes it in, or {beside}')


def replace_file(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all, for its owner only; a link in its place goes.

    Raises:
        OSError: it could not be written; it names the file itself.
    """
    try:
        _replace_file(path, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _replace_file(path: Path, data: bytes) -> None:
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".ckptlab-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _read(path: Path) -> tuple[list[journal.Event], int]:
    """Return a file's events, and how many of its lines are none."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}; in JupyterLab, upload it beside the notebook first")
    if path.stat().st_size > MOST_BYTES:
        raise UsageError(f"{path} has {path.stat().st_size:,} bytes; a saved journal is smaller")
    return journal.parse(path.read_bytes())


def new_events(events: list[journal.Event], there: list[journal.Event]) -> list[journal.Event]:
    """Return the events that are not there, in order, each once."""
    known = set(map(_key, there))
    return [event for key, event in {_key(event): event for event in events}.items() if key not in known]


def _key(event: journal.Event) -> str:
    return json.dumps(event, sort_keys=True)
