"""`ckptlab certificate make FOLDER`, `verify FILE|-|LINK`, `keygen FILE`, `issue RESULTS FOLDER`."""

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

from ckptlab.cli.door import Door, json_option, say, say_json, say_table
from ckptlab.course.certificate.carry import MOST_FILE_BYTES
from ckptlab.course.certificate.keys import did_of, make_key, read_key
from ckptlab.course.certificate.making import issue as make_all
from ckptlab.course.certificate.making import make as make_own
from ckptlab.course.certificate.page import message
from ckptlab.course.certificate.passed import claim_of
from ckptlab.course.certificate.picture import day
from ckptlab.course.certificate.results import read_results
from ckptlab.course.certificate.short_id import parse_id
from ckptlab.course.certificate.verification import EXIT, Verdict, read_issuers
from ckptlab.course.certificate.verification import verify as judge
from ckptlab.course.choice import take_choice
from ckptlab.course.languages import ENGLISH, Message, label, tell
from ckptlab.course.quiz import sitting, words
from ckptlab.errors import FormatError, UsageError

Parsed = TypeVar("Parsed")
HEADLINES = {
    "trusted": "Valid.",
    "unknown": "Unchanged, but not vouched for.",
    "withdrawn": "Not valid today.",
    "invalid": "Not valid.",
}
NOT_SHOWN = (
    "Not shown: whose name it is, that the work was done alone, and what the issuer took back after your list was made. What "
    "counts is what stands here: a picture can be changed around its certificate."
)


@click.group(no_args_is_help=True)
def certificate() -> None:
    """Make your own certificate, check certificates of the course, or issue them."""
    take_choice()


@certificate.command(cls=Door)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", default="", help="What stands on it; nobody checks it. Without it no name is given.")
def make(folder: Path, name: str) -> int:
    """Make your own certificate into a new folder in FOLDER, when you have passed the course; 1, and what is missing, when not.

    Your answers are graded again and your exercises run again, about a second each. The certificate is self-issued: signed with
    a key of your own, which lies beside your journal. Only you vouch for it.
    """
    say(str(tell(words.running())), err=True)
    result = sitting.result()
    if not result.has_passed:
        say(str(tell(words.course(result))))
        return 1
    made = make_own(claim_of(result, name), folder)
    say(f"{made.id}  {made.folder}")
    say(f"Self-issued. Link: {made.link}" if "://" in made.link else f"Self-issued. To show it: {made.folder / 'index.html'}")
    return 0


@certificate.command(cls=Door)
@click.argument("source", metavar="FILE|-|LINK")
@click.option("--id", "typed_id", metavar="ID", help="The ID that it should have, as printed in its picture.")
@click.option("--trust", type=click.Path(path_type=Path), metavar="FILE", help="Your list of issuers, in JSON.")
@json_option
def verify(source: str, typed_id: str | None, trust: Path | None, as_json: bool) -> int:
    """Check a certificate: JSON, SVG or PNG in FILE or on standard input (-), or behind the "#" of a LINK. Without a network.

    Exit code 0: unchanged, and its issuer is in your list. 1: not valid, that is changed, damaged or signed by another key.
    3: unchanged, but self-issued, or its issuer is not in your list. 4: revoked, expired or not valid yet.

    An ID alone proves nothing offline: it is checked against a certificate. A list for --trust looks like
    {"issuers": [{"id": "did:key:z6Mk...", "name": "Example University", "revoked": ["7KQ2-M0TX-3F5D-9WBA-1C2E"]}]}; take
    it from the issuer, and a new one now and then: it is all that tells what was revoked.
    """
    issuers = _parse(trust, read_issuers) if trust is not None else {}
    verdict = judge(_read(source), datetime.now(UTC), issuers, typed_id)
    if as_json:
        say_json(_document(verdict))
    else:
        _say(verdict)
    return EXIT[verdict.outcome]


@certificate.command(cls=Door)
@click.argument("file", type=click.Path(path_type=Path))
def keygen(file: Path) -> int:
    """Make an issuer's key and keep it in FILE, which only you may read; an existing file is left alone.

    Printed is the key's public name: publish it where people trust you. Keep FILE secret: who has it can issue in your name.
    """
    try:
        key = make_key(file)
    except FileExistsError:
        raise UsageError(f"{file} is there already, and a key is never overwritten; name another file") from None
    say(did_of(key))
    return 0


@certificate.command(cls=Door)
@click.argument("results", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path), required=True, help="The key that keygen made.")
@click.option("--issuer", metavar="NAME", required=True, help="What you call yourself, such as the name of your school.")
def issue(results: Path, folder: Path, key: Path, issuer: str) -> int:
    """Issue a certificate for each who passed in RESULTS, into FOLDER/c/<ID>/, and put the page that checks them into FOLDER.

    RESULTS is the results.json of 'ckptlab grade', which says what it found when it ran everything again. The name on a
    certificate is the "name" that stands there: that of the file that was handed in, unless you have written another.

    Who has one in FOLDER already, for the same answers, gets no other: move that away to issue it again.

    CKPTLAB_VERIFY_PAGE is the address at which that page, verify.html, will be served; links and QR codes lead there.
    """
    try:
        made = make_all(_parse(results, read_results), folder, read_key(key), issuer)
    except FormatError as error:
        raise UsageError(str(error)) from None
    for one in made:
        say(f"{one.id}  {one.link if '://' in one.link else one.folder}")
    if not made:
        say(f"Nobody is new: all have a certificate in {folder / 'c'}.")
    return 0


def _read(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read(MOST_FILE_BYTES + 1)
    is_there = os.path.exists(source)  # unlike a Path, a link that is longer than any name can only be absent
    if "#" in source and not is_there:
        return source.encode(errors="replace")
    if parse_id(source) is not None and not is_there:
        raise UsageError("an ID alone proves nothing offline: give the certificate, or its link, and the ID as --id")
    return _read_file(Path(source))


def _read_file(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MOST_FILE_BYTES + 1)


def _parse(file: Path, parse: Callable[[bytes], Parsed]) -> Parsed:
    """Parse a file that the user wrote: what is wrong in it is bad usage, and no verdict on a certificate."""
    try:
        return parse(_read_file(file))
    except FormatError as error:
        raise UsageError(f"{file}: {error}") from None


def _say(verdict: Verdict) -> None:
    headline = tell(Message(f"certificate.outcome.{verdict.outcome}", HEADLINES[verdict.outcome]))
    say(f"{headline} {tell(verdict.reason)}")
    facts = verdict.facts
    if facts is None:
        return
    rows: dict[str, object] = {  # as the page has them
        "name": facts.name or tell(message("name.none")),
        "course": tell(message("course.version", course=facts.course, version=facts.version)),
        "result": tell(message("result.percent", percent=facts.percent)),
        "rule": facts.criteria,
        "when": tell(message("when.issuer", date=day(facts.issued, ENGLISH))),
        "evidence": facts.evidence,
        "evidence.id": facts.evidence_id,
        "issuer": facts.issuer_name if facts.self_issued else tell(message("issuer.called", name=facts.issuer_name)),
        "key": facts.issuer,
        "id": verdict.id,
    }
    say_table([(label(message(name)), value) for name, value in rows.items()], "  ")
    say(str(tell(Message("certificate.not", NOT_SHOWN))))


def _document(verdict: Verdict) -> dict[str, object]:
    facts = None if verdict.facts is None else asdict(verdict.facts)
    for name in ("issued", "until"):
        if facts is not None and facts[name] is not None:
            facts[name] = facts[name].isoformat()
    return {"outcome": verdict.outcome, "why": verdict.why, "id": verdict.id, "facts": facts}
