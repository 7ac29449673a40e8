"""When two written answers are the same: Unicode, capitals, spaces and marks that a keyboard may lack. Pure."""

import unicodedata


def plain(text: str) -> str:
    """Return a text as it is compared: composed, without capitals, its spaces joined, without the quotes of code."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(folded.replace("`", " ").split())


def same(one: str, other: str) -> bool:
    """Whether two texts are the same answer."""
    return plain(one) == plain(other)


def same_but_for_marks(one: str, other: str) -> bool:
    """Whether two texts are the same when dots, accents and other marks are left out."""
    return _without_marks(plain(one)) == _without_marks(plain(other))


def _without_marks(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", text) if not unicodedata.combining(char))
