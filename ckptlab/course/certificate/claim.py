"""What a certificate claims: only what was recomputed when it was made. The caller recomputes; nothing here believes a journal.

The list of all that was recomputed stays with its owner. The certificate names it by its SHA-256 and counts it.
"""

import base64
import hashlib
import re
import unicodedata
from dataclasses import asdict, dataclass

from ckptlab.course.certificate.proof import canonical
from ckptlab.course.certificate.shape import NAME, TEXT
from ckptlab.errors import UsageError
from ckptlab.format.strict_json import as_list, as_natural, as_record, as_text

KINDS = ("exercise", "answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """A question bank as it was at grading: its name ("02"), and the SHA-256 of its file in hex."""

    bank: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """One thing that was run or graded again.

    `kind` is "exercise" or "answer"; `id` is "3.1" or "02.rows-of-last-rank.0", the variant last; `sha256`, in hex, names what
    was given (the source, the answer's JSON); `credit` is what it is worth today: "1", "0" or a fraction like "2/3".
    """

    kind: str
    id: str
    sha256: str
    credit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What was reached: `percent` of the final quiz, rounded down, under `criteria`, the rule that was met, in words.

    `name` is what was typed, or ""; nobody checked it. `version` is the course's.

    Raises:
        UsageError: a text is empty, too long or cannot be shown in one line, or nothing was recomputed.
    """

    name: str
    course: str
    version: str
    criteria: str
    percent: int
    banks: tuple[Bank, ...]
    recomputed: tuple[Recomputed, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", unicodedata.normalize("NFC", " ".join(filter(None, self.name.split(" ")))))
        lines = (("name", self.name or "-", NAME), ("course", self.course, NAME), ("criteria", self.criteria, TEXT))
        for what, text, pattern in lines:
            if not re.fullmatch(pattern[1:-1], text):
                raise UsageError(f"{what} {text!r:.99}: expected one line of text without control characters, not too long")
        if not re.fullmatch(r"[0-9A-Za-z.+-]{1,40}", self.version) or not 0 <= self.percent <= 100:
            raise UsageError(f"version {self.version!r:.60}, {self.percent} percent: expected like 1.2.0, and 0 to 100 percent")
        if not self.recomputed or any(item.kind not in KINDS for item in self.recomputed):
            raise UsageError("a certificate claims only what was recomputed: exercises and answers; found none of these")

    def count(self, kind: str) -> int:
        """Count what was recomputed of a kind."""
        return sum(item.kind == kind for item in self.recomputed)

    def evidence(self) -> bytes:
        """Return the canonical JSON of all that was recomputed, with the versions of course and banks."""
        banks, items = [asdict(bank) for bank in self.banks], [asdict(item) for item in self.recomputed]
        return canonical({"version": self.version, "banks": banks, "recomputed": items})

    def evidence_uri(self) -> str:
        """Return the name of the evidence: its SHA-256 as RFC 6920 writes it."""
        return "ni:///sha-256;" + base64.urlsafe_b64encode(hashlib.sha256(self.evidence()).digest()).decode().rstrip("=")


def read_claim(value: object, where: str) -> Claim:
    """Take a claim as JSON has it: an object with the members of `Claim`.

    Raises:
        FormatError: it is none; `where` is said.
        UsageError: it cannot be made.
    """
    record = as_record(value, where, Claim.__slots__)
    texts = {name: as_text(record[name], f"{where}.{name}") for name in ("name", "course", "version", "criteria")}
    banks, items = (as_list(record[name], f"{where}.{name}") for name in ("banks", "recomputed"))
    return Claim(
        **texts,
        percent=as_natural(record["percent"], f"{where}.percent", 101),
        banks=tuple(_bank(item, f"{where}.banks") for item in banks),
        recomputed=tuple(_recomputed(item, f"{where}.recomputed") for item in items),
    )


def _bank(value: object, where: str) -> Bank:
    record = as_record(value, where, Bank.__slots__)
    return Bank(**{name: as_text(item, where) for name, item in record.items()})


def _recomputed(value: object, where: str) -> Recomputed:
    record = as_record(value, where, Recomputed.__slots__)
    return Recomputed(**{name: as_text(item, where) for name, item in record.items()})
