"""`verify.html`: the one page that checks a certificate in a browser, put together from `page/`. It needs no network.

The rules that the command uses, and the texts, one table a language, lie in it as data.
"""

import base64
import hashlib
import json
import re
from pathlib import Path

from babel.dates import get_date_format, get_month_names

from ckptlab.course.certificate.credential import SELF_ISSUED
from ckptlab.course.certificate.keys import WEAK
from ckptlab.course.certificate.shape import CERTIFICATE
from ckptlab.course.languages import ENGLISH, LANGUAGES, LOCALE, Message, tell

PARTS = Path(__file__).parent / "page"


def message(text: str, /, **values: object) -> Message:
    """Return one of the page's texts, by its name there, to say elsewhere too."""
    return Message(f"verify.{text}", _english()[text], values)


def make_page(certificate: bytes = b"", translations: Path = LOCALE) -> str:
    """Return the page; with a certificate's JSON it opens on that one, unless its link names another.

    `translations` is the folder of the `.po` files; a language with none of the page's texts is not offered.
    """
    style, script = (_read(name) for name in ("verify.css", "verify.js"))
    parts = {
        "STYLE_HASH": _hash(style),
        "SCRIPT_HASH": _hash(script),
        "TEXTS": _data(_texts(translations)),
        "RULES": _data({"shape": CERTIFICATE, "weak": WEAK, "selfIssued": SELF_ISSUED}),
        "CREDENTIAL": _data(json.loads(certificate)) if certificate else "",
        "STYLE": style,
        "SCRIPT": script,
    }
    return re.sub(r"@([A-Z_]+)@", lambda mark: parts[mark[1]], _read("verify.html"))


def _texts(translations: Path) -> dict[str, dict[str, object]]:
    """Return by language its name, how it writes a date, and what there is in it: "texts", and of these "drafts", by name."""
    english = _english()
    tables: dict[str, dict[str, object]] = {}
    for language, own_name in LANGUAGES.items():
        told = {name: tell(Message(f"verify.{name}", text), language, translations) for name, text in english.items() if text}
        texts = {name: one.translation for name, one in told.items() if one.translation}
        if texts or language == ENGLISH:
            drafts = [name for name, one in told.items() if one.is_draft]
            tables[language] = {"name": own_name, **_dates(language), "texts": texts or english, "drafts": drafts}
    return tables


def _english() -> dict[str, str]:
    texts: dict[str, str] = json.loads(_read("texts.json"))
    return texts


def _dates(language: str) -> dict[str, str]:
    """Return how a language writes a date, for browsers that do not know it."""
    months = get_month_names("wide", locale=language)
    names = "|".join(months[number] for number in range(1, 13))
    return {"months": names, "pattern": get_date_format("long", locale=language).pattern}


def _data(value: object) -> str:
    """Write JSON that can stand inside a script element, whatever texts are in it."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")
