"""Making certificates: the only file here that reads the clock, draws ids and writes folders.

A certificate is a folder called by its ID: `credential.json`, the pictures, `index.html` (the page that checks it, opened on
it) and `evidence.json` (the list behind the evidence hash; it holds no answers). Any static host can serve it.
"""

import json
import os
import re
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ckptlab.course.certificate import carry, picture, proof
from ckptlab.course.certificate.claim import Claim
from ckptlab.course.certificate.credential import SELF_ISSUED, make_document, read_facts, to_text
from ckptlab.course.certificate.keys import did_of, own_key
from ckptlab.course.certificate.page import make_page
from ckptlab.course.certificate.short_id import short_id
from ckptlab.errors import UsageError

PAGE = "CKPTLAB_VERIFY_PAGE"  # the address of a copy of the page that checks, for links and QR codes
BESIDE = "index.html"  # without one: the page that lies beside the picture


@dataclass(frozen=True, slots=True)
class Made:
    """A certificate that was made: its short ID, its folder, and its link."""

    id: str
    folder: Path
    link: str


def make(claim: Claim, folder: str | Path) -> Made:
    """Make a self-issued certificate in a new folder inside `folder`, signed with the learner's own key.

    Raises:
        UsageError: the key is not the owner's alone, or the address of the page is none.
    """
    return _write(Path(folder), *_sign(claim, own_key(), SELF_ISSUED))


def issue(claims: Sequence[Claim], folder: Path, key: Ed25519PrivateKey, issuer_name: str) -> list[Made]:
    """Make a certificate for each claim in `folder/c/<ID>/`, and `folder/verify.html`, the page on its own.

    A claim whose list of what was recomputed lies in `folder/c` already is left out: with two IDs one would outlive the other.

    Raises:
        UsageError: the issuer calls itself as learners do, or the address of the page is none.
        FormatError: the issuer's name cannot be shown in one line.
    """
    if issuer_name == SELF_ISSUED:
        raise UsageError(f"an issuer cannot be called {SELF_ISSUED!r}: that is how a learner's own certificates are known")
    there = {file.read_bytes() for file in (folder / "c").glob("*/evidence.json")}
    new = [claim for claim in claims if claim.evidence() not in there]
    ready = [_sign(claim, key, issuer_name) for claim in new]  # who cannot have one is told before anybody has
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verify.html").write_text(make_page(), encoding="utf-8")
    return [_write(folder / "c", *one) for one in ready]


def _sign(claim: Claim, key: Ed25519PrivateKey, issuer_name: str) -> tuple[str, str, dict[str, bytes]]:
    """Return a certificate's ID, its link, and its files by name."""
    now = datetime.now(UTC)
    ids = (uuid.uuid4().urn, uuid.uuid4().urn)
    document = proof.sign(make_document(claim, did_of(key), issuer_name, now, ids), key, to_text(now))
    id_, data = short_id(proof.digest(document)), proof.canonical(document)
    link = f"{_page_address()}#{carry.to_fragment(data)}"
    svg = picture.to_svg(read_facts(document), id_, link)
    files = {
        "credential.json": json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n",
        "certificate.svg": carry.bake_svg(svg, data).encode(),
        "certificate.png": carry.bake_png(picture.to_png(svg), data),
        "evidence.json": claim.evidence(),
        "index.html": make_page(data).encode(),
    }
    return id_, link, files


def _page_address() -> str:
    address = os.environ.get(PAGE, BESIDE)
    if address != BESIDE and not re.fullmatch(r"https?://[!$-;=?-~]{3,200}", address):
        raise UsageError(
            f"{PAGE}={address!r:.99}: expected the address of a page, like https://example.edu/verify.html, without '#'"
        )
    return address


def _write(parent: Path, id_: str, link: str, files: dict[str, bytes]) -> Made:
    """Write a certificate's folder as a whole or not at all."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=".making-") as temporary:
        ready = Path(temporary, id_)
        ready.mkdir()
        for name, data in files.items():
            (ready / name).write_bytes(data)
        return Made(id_, ready.rename(parent / id_), link)
