"""A certificate in a notebook: what is missing in words, or the picture with the same in words, the ID and the link."""

import base64
import html
import json
from pathlib import Path

from ckptlab.course.figures.picture import show
from ckptlab.course.languages import say, tell
from ckptlab.course.quiz import sitting, words

FOLDER = "certificates"  # beside the notebook
STYLE = "max-width:60em; color:var(--jp-content-font-color1); overflow-wrap:anywhere"


def show_own(name: str) -> None:
    """Grade and run everything again, and make and show the learner's own certificate if the course is passed."""
    print(tell(words.running()))
    result = sitting.result()
    if not result.has_passed:
        print(say("certificate.missing", "No certificate yet. {missing}", missing=words.course(result)))
        return
    from ckptlab.course.certificate.making import make
    from ckptlab.course.certificate.passed import claim_of

    made = make(claim_of(result, name), FOLDER)
    _show(made.folder, made.id, made.link)


def _show(folder: Path, id_: str, link: str) -> None:
    from ckptlab.course.certificate.credential import read_facts
    from ckptlab.course.certificate.picture import to_words

    picture = base64.b64encode((folder / "certificate.svg").read_bytes()).decode()
    alternative = to_words(read_facts(json.loads((folder / "credential.json").read_text(encoding="utf-8"))), id_)
    own, where = _told(folder, id_, link)
    image = f'<img alt="{html.escape(alternative)}" src="data:image/svg+xml;base64,{picture}" style="width:100%">'
    paragraphs = f"<p>{html.escape(own)}</p><p>{html.escape(where)}</p>{_link(link) if '://' in link else ''}"
    text = "\n".join((alternative, own, where, *([link] if "://" in link else [])))
    show({"text/html": f'<div style="{STYLE}">{image}{paragraphs}</div>', "text/plain": text})


def _told(folder: Path, id_: str, link: str) -> tuple[str, str]:
    text = "It is self-issued: signed with your own key, so only you vouch for it. The files are in {folder}; its ID is {id}."
    own = say("certificate.own", text, folder=folder, id=id_)
    if "://" in link:
        return own, say("certificate.link", "Who opens its link sees it checked; no server sees what stands behind the #.")
    text = "To show it, give away its {page}: that page holds the certificate and checks it in any browser, without a network."
    return own, say("certificate.page", text, page=link.partition("#")[0])


def _link(link: str) -> str:
    """Show a link, of which most is the certificate: short to press, and whole to copy, in a fold."""
    address, whole = html.escape(f"{link.partition('#')[0]}#…"), html.escape(link)
    name = html.escape(say("certificate.whole-link", "The whole link, to copy"))
    fold = f"<details><summary>{name}</summary><code>{whole}</code></details>"
    return f'<p><a href="{whole}" target="_blank" rel="noopener noreferrer">{address}</a></p>{fold}'
