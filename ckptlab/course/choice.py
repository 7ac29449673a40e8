"""Which language a learner is told in, decided here alone.

First comes what is said from outside, by `ckptlab --language` or by `CKPTLAB_LANGUAGE` when a process starts; then the
learner's own choice, the last one in the journal, which a saved journal brings along; then English.

A kernel asks at `%load_ext ckptlab.course`, the course's commands in the terminal when they are called.
"""

from collections.abc import Iterable, Iterator

from ckptlab.course import journal
from ckptlab.course.languages import ENGLISH, LANGUAGES, Message, is_said_from_outside, use
from ckptlab.errors import UsageError

KIND = "language"


def choose(code: str) -> None:
    """Use a language in this process, whatever was said from outside, and keep the choice for the next ones.

    Raises:
        UsageError: there is no such language.
        OSError: the choice could not be kept; nothing has changed.
    """
    if not isinstance(code, str) or code not in LANGUAGES:
        raise UsageError(f"there is no language {code!r}; there are {', '.join(LANGUAGES)}")
    journal.append(KIND, language=code)
    use(code, is_own_choice=True)


def take_choice() -> None:
    """Use the learner's choice in this process, unless another language is said from outside. No damaged journal stops it."""
    code = chosen(journal.look())
    if code is not None and not is_said_from_outside():
        use(code, is_own_choice=True)


def chosen(events: Iterable[journal.Event]) -> str | None:
    """Return the last choice in a journal. A language that is not known here, or none, chooses nothing."""
    codes = [event.get("language") for event in events if event["kind"] == KIND]
    return next((code for code in reversed(codes) if isinstance(code, str) and code in LANGUAGES), None)


def told(code: str) -> Iterator[Message]:
    """Say what a choice means."""
    text = "Quizzes, hints and verdicts are in {language} now, also in the notebooks that you open from here on."
    yield Message("language.chosen", text, {"language": LANGUAGES[code]})
    if code != ENGLISH:
        text = "A translation that no native speaker has read is a draft, below its English. What has none is in English."
        yield Message("language.drafts", text)
    yield Message("language.again", "What stands in this notebook already changes when its cell is run again.")
