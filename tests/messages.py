"""Bring `ckptlab/course/locale/*.po` up to all that the course says: `python tests/messages.py`, which `make messages` runs.

A translation is kept as long as its context and its English are those of the course. One whose English has changed is not shown
any more and goes to the end of its file, as obsolete; it comes back, as a draft, when the English does. Locations have no line
numbers and heads no dates, so that a file changes only when a text does.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from said import Entry, entries

from ckptlab.course.languages import ENGLISH, LANGUAGES, LOCALE, names

PLURALS = {"ig": "nplurals=1; plural=0;", "so": "nplurals=2; plural=(n != 1);"}
HEAD = """\
# An entry that is marked fuzzy is a draft that no native speaker has read; learners see it beside the English.
# To review one: correct it, and delete the mark. A text with no translation, or with a stale one, is shown in English.
msgid ""
msgstr ""
"Language: {}\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Plural-Forms: {}\\n"

"""


def update(old: Catalog, found: Iterable[Entry]) -> Catalog:
    """Return a catalog of all texts, with the translations of `old` that still fit."""
    new = Catalog(locale=old.locale, fuzzy=False)
    for one in old.obsolete.values():
        one.flags.add("fuzzy")  # whether it was is not kept in obsolete entries
    known = {(one.context, one.id): one for one in (*old.obsolete.values(), *old) if one.id and one.string}
    for entry in found:
        kept = known.pop((entry.context, entry.text), None)
        notes = [note for note in (entry.note, _about_names(entry.text)) if note]
        made = new.add(
            entry.text,
            kept.string if kept else "",
            locations=[(entry.place, None)],
            flags=kept.flags if kept else (),
            auto_comments=notes,
            user_comments=kept.user_comments if kept else (),
            context=entry.context,
        )
        made.flags -= {"python-format", "python-brace-format"}  # guessed by Babel from a "%" or a brace
    new.obsolete.update({(one.id, one.context): one for one in known.values()})
    return new


def read(language: str, folder: Path = LOCALE) -> Catalog:
    """Read a language's file; a new one is empty."""
    file = folder / f"{language}.po"
    return read_po(BytesIO(file.read_bytes() if file.exists() else HEAD.format(language, PLURALS[language]).encode()))


def write(language: str, catalog: Catalog, folder: Path = LOCALE) -> None:
    """Write a language's file."""
    body = BytesIO()
    write_po(body, catalog, width=100, omit_header=True)
    head = HEAD.format(language, PLURALS[language])
    (folder / f"{language}.po").write_text(head + body.getvalue().decode().rstrip("\n") + "\n", encoding="utf-8")


def reviewed(catalog: Catalog, found: Sequence[Entry]) -> Fraction:
    """Return the share of all texts whose translation a native speaker has reviewed: it stands, and is not `fuzzy`."""
    kept = [catalog.get(entry.text, entry.context) for entry in found]
    return Fraction(sum(bool(one and one.string and not one.fuzzy) for one in kept), len(found))


def _about_names(text: str) -> str:
    return f"keep {', '.join(f'{{{name}}}' for name in sorted(found))}" if (found := names(text)) else ""


def main() -> None:
    """Update the files, and say how far they are."""
    found = entries()
    for language in LANGUAGES:
        if language != ENGLISH:
            catalog = update(read(language), found)
            write(language, catalog)
            done = sum(bool(one.string) for one in catalog if one.id)
            share = float(reviewed(catalog, found))
            print(f"{language}: {len(found)} texts, {done} translated, {share:.0%} reviewed, {len(catalog.obsolete)} obsolete")


if __name__ == "__main__":
    main()
