"""The certificate as an Open Badges 3.0 credential (W3C Verifiable Credentials 2.0): written, and read for showing.

It has texts only, so that no two readers see two numbers in one. There is no e-mail in it; its subject is a random id.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from ckptlab.course.certificate import shape
from ckptlab.course.certificate.claim import Claim
from ckptlab.course.certificate.proof import Document
from ckptlab.errors import FormatError

SELF_ISSUED = "Self-issued by the learner"  # the issuer's name, and how a reader knows
DESCRIPTION = "Checkpoint sharding and resumable training: notebooks with real ranks, exercises and a graded quiz."


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a certificate says, for showing. `issuer` is its did:key; `issuer_name` is what the issuer calls itself."""

    name: str
    course: str
    version: str
    criteria: str
    percent: str
    evidence: str
    evidence_id: str
    issuer: str
    issuer_name: str
    issued: datetime
    until: datetime | None

    @property
    def self_issued(self) -> bool:
        """Say whether it says so of itself."""
        return self.issuer_name == SELF_ISSUED


def make_document(claim: Claim, issuer: str, issuer_name: str, issued: datetime, ids: tuple[str, str]) -> Document:
    """Return the unsigned document; `ids` are two random URNs, of the certificate and of its subject.

    Raises:
        FormatError: the issuer's name cannot be shown in one line.
    """
    own = issuer_name == SELF_ISSUED
    subject: Document = {"id": ids[1], "type": ["AchievementSubject"]}
    if claim.name:
        subject["identifier"] = [
            {"type": "IdentityObject", "hashed": False, "identityHash": claim.name, "identityType": "name"}
        ]
    document: Document = {
        "@context": [*shape.CONTEXTS],
        "id": ids[0],
        "type": ["VerifiableCredential", "OpenBadgeCredential"],
        "name": f"{claim.course[:80]} ({'self-issued certificate' if own else 'certificate'})",
        "issuer": {"id": issuer, "type": ["Profile"], "name": issuer_name},
        "validFrom": to_text(issued),
        "credentialSubject": {**subject, "achievement": _achievement(claim), "result": [_result(claim)]},
        "evidence": [_evidence(claim)],
    }
    if place := shape.misfit(document, shape.UNSIGNED):
        raise FormatError(f"a certificate cannot hold this as its {place}; it takes one line of text, not too long")
    return document


def read_facts(document: object) -> Facts:
    """Read what a certificate of this course says; whether it is true is not asked here.

    Raises:
        FormatError: it has another form: another credential, or a member that no reader here would know what to do with.
    """
    if place := shape.misfit(document, shape.CERTIFICATE):
        raise FormatError(f"not a certificate of this course, at {place[:80]}")
    until = _at(document, "validUntil")
    return Facts(
        name=_at(document, "credentialSubject.identifier.0.identityHash"),
        course=_at(document, "credentialSubject.achievement.name"),
        version=_at(document, "credentialSubject.achievement.version"),
        criteria=_at(document, "credentialSubject.achievement.criteria.narrative"),
        percent=_at(document, "credentialSubject.result.0.value"),
        evidence=_at(document, "evidence.0.narrative"),
        evidence_id=_at(document, "evidence.0.id"),
        issuer=_at(document, "issuer.id"),
        issuer_name=_at(document, "issuer.name"),
        issued=_from_text(_at(document, "validFrom")),
        until=_from_text(until) if until else None,
    )


def to_text(time: datetime) -> str:
    """Write a time as certificates have it, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _from_text(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise FormatError(f"{text} is no date") from None


def _at(document: object, place: str) -> str:
    """Return the text at a place like "issuer.id"; "" when it is not there."""
    for part in place.split("."):
        if isinstance(document, list):
            document = document[int(part)]
        else:
            document = document.get(part) if isinstance(document, dict) else None
    return document if isinstance(document, str) else ""


def _achievement(claim: Claim) -> Document:
    score: Document = {"id": shape.FINAL_SCORE, "type": ["ResultDescription"], "name": "Final quiz"}
    return {
        "id": shape.ACHIEVEMENT,
        "type": ["Achievement"],
        "achievementType": "CertificateOfCompletion",
        "name": claim.course,
        "description": DESCRIPTION,
        "criteria": {"narrative": claim.criteria},
        "inLanguage": "en",
        "version": claim.version,
        "resultDescription": [{**score, "resultType": "Percent", "valueMin": "0", "valueMax": "100"}],
    }


def _result(claim: Claim) -> Document:
    return {"type": ["Result"], "resultDescription": shape.FINAL_SCORE, "value": str(claim.percent)}


def _evidence(claim: Claim) -> Document:
    banks = ", ".join(f"{bank.bank} {bank.sha256[:8]}" for bank in claim.banks) or "none"
    counts = f"Exercises run again: {claim.count('exercise')}. Quiz answers graded again: {claim.count('answer')}."
    versions = f"Course {claim.version}; question banks by SHA-256: {banks}."
    narrative = f"{counts} {versions} The list of all of it is evidence.json; the id of this entry is its SHA-256."
    return {"id": claim.evidence_uri(), "type": ["Evidence"], "name": "What was recomputed at issue", "narrative": narrative}
