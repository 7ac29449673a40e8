"""Is a certificate as it was signed, and how far can it be trusted? Pure: the clock and the list of issuers come in.

Outcomes, worst first, are the exit codes of the command: invalid 1, withdrawn 4 (revoked, expired or not valid yet), unknown 3
(valid, but self-issued or by an issuer that the reader does not know), trusted 0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from ckptlab.course.certificate import carry, proof, shape
from ckptlab.course.certificate.credential import Facts, read_facts, to_text
from ckptlab.course.certificate.short_id import differing_groups, parse_id, short_id
from ckptlab.course.languages import Message, fill
from ckptlab.errors import FormatError, UsageError
from ckptlab.format.strict_json import as_list, as_record, as_text, parse_json

EXIT = {"trusted": 0, "invalid": 1, "unknown": 3, "withdrawn": 4}
CLOCKS_DIFFER = timedelta(minutes=10)
WHY = {  # what is said of a certificate whose signature is right
    "revoked": "{issuer} has taken it back: its ID is among the revoked ones of your list.",
    "expired": "It was valid until {until}.",
    "early": "It is valid from {issued}; this machine's clock says {now}.",
    "trusted": "Signed by {issuer}, which is in your list of issuers, and unchanged since.",
    "self": "Unchanged since it was signed, and self-issued: only the learner vouches for it.",
    "unknown": "Unchanged since it was signed, by an issuer that is not in your list (--trust). Anybody can make a key.",
    "typing": "The ID does not fit: it is {found}, group {group} of yours differs; is that a typing error?",
    "other": "The ID does not fit: this certificate is {found}, you have the ID of another one.",
}


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer that the reader trusts: the reader's name for it, and the IDs of the certificates that it took back."""

    name: str
    revoked: frozenset[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`outcome` is a key of `EXIT`, `reason` a sentence; `facts` and `id` are None when there is nothing to be believed."""

    outcome: str
    reason: Message
    facts: Facts | None = None
    id: str | None = None

    @property
    def why(self) -> str:
        """Give the reason in English, for programs."""
        return fill(self.reason.text, self.reason.values)


def verify(data: bytes, now: datetime, issuers: Mapping[str, Issuer], typed_id: str | None = None) -> Verdict:
    """Judge the content of a file or a link; `issuers` by did:key; `typed_id` is what the certificate's ID should be.

    Raises:
        UsageError: `typed_id` is no ID.
    """
    expected = parse_id(typed_id) if typed_id is not None else None
    if typed_id is not None and expected is None:
        raise UsageError(f"ID {typed_id!r:.60}: expected five groups of four letters and digits, like 7KQ2-M0TX-3F5D-9WBA-1C2E")
    try:
        document = parse_json(carry.unpack(data), "certificate", carry.MOST_BYTES)
        facts = read_facts(document)
        assert isinstance(document, dict)  # read_facts takes nothing else
        fault, found = proof.find_fault(document), short_id(proof.digest(document))
    except FormatError as error:
        return Verdict("invalid", _message(f"{error}"))
    if fault is None and document["proof"]["verificationMethod"].partition("#")[0] != facts.issuer:
        fault = "it is signed by another key than its issuer's"
    if fault is not None:
        return Verdict("invalid", _message(fault))
    if expected not in (None, found):
        groups = differing_groups(expected or "", found)
        why = "typing" if len(groups) == 1 else "other"
        return Verdict("invalid", _message(why, found=found, group=groups[0]), facts, found)
    return _judge(facts, found, now, issuers.get(facts.issuer))


def read_issuers(data: bytes) -> dict[str, Issuer]:
    """Read a list of trusted issuers: `{"issuers": [{"id": "did:key:…", "name": "…", "revoked": ["7KQ2-…"]}]}`.

    Raises:
        FormatError: it is no such list.
    """
    document = as_record(parse_json(data, "issuers", carry.MOST_FILE_BYTES), "issuers", {"issuers"})
    issuers: dict[str, Issuer] = {}
    for index, item in enumerate(as_list(document["issuers"], "issuers")):
        where = f"issuers[{index}]"
        record = as_record(item, where, {"id", "name", "revoked"})
        did = as_text(record["id"], f"{where}.id")
        if not re.fullmatch(shape.DID[1:-1], did) or did in issuers:
            raise FormatError(f"{where}.id: expected a did:key of an Ed25519 key, each once; found {did!r:.80}")
        revoked = [_id(text, f"{where}.revoked") for text in as_list(record["revoked"], f"{where}.revoked")]
        issuers[did] = Issuer(as_text(record["name"], f"{where}.name"), frozenset(revoked))
    return issuers


def _judge(facts: Facts, found: str, now: datetime, issuer: Issuer | None) -> Verdict:
    if issuer is not None and found in issuer.revoked:
        outcome, why = "withdrawn", "revoked"
    elif facts.until is not None and now > facts.until:
        outcome, why = "withdrawn", "expired"
    elif facts.issued > now + CLOCKS_DIFFER:
        outcome, why = "withdrawn", "early"
    elif issuer is not None:
        outcome, why = "trusted", "trusted"
    else:
        outcome, why = "unknown", "self" if facts.self_issued else "unknown"
    times = {"issued": to_text(facts.issued), "now": to_text(now), "until": to_text(facts.until) if facts.until else ""}
    return Verdict(outcome, _message(why, issuer=issuer.name if issuer else "", **times), facts, found)


def _message(why: str, **values: object) -> Message:
    """Return a reason: by its name in `WHY`, or as it is, for what only a program or its author can understand."""
    return (
        Message(f"certificate.{why}", WHY[why], values)
        if why in WHY
        else Message("certificate.fault", f"{why[0].upper()}{why[1:]}.")
    )


def _id(value: object, where: str) -> str:
    text = as_text(value, where)
    parsed = parse_id(text)
    if parsed is None:
        raise FormatError(f"{where}: expected IDs like 7KQ2-M0TX-3F5D-9WBA-1C2E, found {text!r:.60}")
    return parsed
