"""What the course says to a learner, in the learner's language: a context and an English text in, a text out.

Code says a `Message`; `tell` gives it in the language that `CKPTLAB_LANGUAGE` names, by `locale/LANGUAGE.po`. Where an entry is
missing, its English is another by now, or its {names} are not those of the English, the English stands. A `fuzzy` entry is a
draft that no native speaker has read: it is shown beside the English, never in its place.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from babel.messages.catalog import Catalog

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "ig": "Igbo", "so": "Soomaali"}  # by code, each by the name that it has for itself
VARIABLE = "CKPTLAB_LANGUAGE"
OWN = "CKPTLAB_LANGUAGE_IS_CHOSEN"  # stands beside it where it is the learner's own choice, and not said from outside
LOCALE = Path(__file__).with_name("locale")
_NAME = re.compile(r"\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True, slots=True)
class Message:
    """Something to say: where it stands ("02.rows.ask", "quiz.status"), the English, and values for its {names}.

    A value may be a message itself: its English goes into the English, its translation into the translation.
    """

    context: str
    text: str
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A message as a learner reads it."""

    english: str
    translation: str | None = None
    language: str = ENGLISH  # of the translation
    is_draft: bool = False

    @property
    def sure(self) -> str:
        """Return what stands in the first place: the translation once it is reviewed, else the English."""
        return self.english if self.translation is None or self.is_draft else self.translation

    @property
    def draft(self) -> str:
        """Return what stands beside it as a draft, if anything."""
        return self.translation or "" if self.is_draft else ""

    def __str__(self) -> str:
        return f"{self.sure} [draft translation: {self.draft}]" if self.draft else self.sure


def use(language: str, *, is_own_choice: bool = False) -> None:
    """Tell everything in this language from now on, in this process and in those that it starts."""
    os.environ[VARIABLE] = language
    os.environ.pop(OWN, None)
    if is_own_choice:
        os.environ[OWN] = "1"


def current() -> str:
    """Return the language in which everything is told."""
    return os.environ.get(VARIABLE) or ENGLISH


def is_said_from_outside() -> bool:
    """Whether who started this process has said which language it is."""
    return bool(os.environ.get(VARIABLE)) and OWN not in os.environ


def tell(message: Message, language: str | None = None, folder: Path = LOCALE) -> Told:
    """Give a message in a language, by default in the current one."""
    language = language or current()
    inner = {name: tell(value, language, folder) for name, value in message.values.items() if isinstance(value, Message)}
    english = fill(message.text, {**message.values, **{name: told.english for name, told in inner.items()}})
    found = _find(message, language, folder)
    if found is None and not any(told.translation for told in inner.values()):
        return Told(english=english)
    text, is_draft = found or (message.text, False)
    translation = fill(text, {**message.values, **{name: told.translation or told.english for name, told in inner.items()}})
    if translation == english:  # as of an ID, or a name that is kept
        return Told(english=english)
    is_draft = is_draft or any(told.is_draft for told in inner.values())
    return Told(english=english, translation=translation, language=language, is_draft=is_draft)


def say(context: str, text: str, /, **values: object) -> str:
    """Give a message as plain text."""
    return str(tell(Message(context, text, values)))


def label(message: Message) -> str:
    """Give a message as the label of a button, which is short and cannot be marked as of a language."""
    told = tell(message)
    return f"{told.sure} (draft: {told.draft})" if told.draft else told.sure


def fill(text: str, values: Mapping[str, object]) -> str:
    """Put values in the place of their {names}; other braces stay."""
    return _NAME.sub(lambda match: str(values.get(match[1], match[0])), text)


def names(text: str) -> set[str]:
    """Return the {names} of a text."""
    return set(_NAME.findall(text))


def _find(message: Message, language: str, folder: Path) -> tuple[str, bool] | None:
    file = folder / f"{language}.po"
    if language == ENGLISH or not re.fullmatch("[a-z]{2,3}", language) or not file.is_file():
        return None
    entry = _catalog(file, file.stat().st_mtime_ns).get(message.text, message.context)
    text = entry.string if entry else ""
    if not entry or not isinstance(text, str) or not text or names(text) != names(message.text):
        return None
    return text, entry.fuzzy


@lru_cache(maxsize=4)
def _catalog(file: Path, changed_ns: int) -> "Catalog":
    """Read a file once for each time that it changed."""
    from babel.messages.pofile import read_po  # only where a translation is wanted

    with file.open("rb") as lines:
        return read_po(lines)
