"""The short ID of a certificate: 100 bits of the SHA-256 of what it says, without its proof, to read out and to type.

The proof is left out, so that the ID names what is said and by whom, and can be printed in a picture of it; who has signed it
is asked of the signature. Letters are Crockford's: no I, L, O or U; typed I and L are read as 1, O as 0.
"""

import re

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
NUM_GROUPS, GROUP = 5, 4


def short_id(digest: bytes) -> str:
    """Return the ID of a SHA-256 digest, such as 7KQ2-M0TX-…, five groups of four."""
    number = int.from_bytes(digest) >> (len(digest) * 8 - NUM_GROUPS * GROUP * 5)
    letters = "".join(ALPHABET[number >> shift & 31] for shift in range((NUM_GROUPS * GROUP - 1) * 5, -1, -5))
    return "-".join(_groups(letters))


def parse_id(typed: str) -> str | None:
    """Return the ID that was typed, as `short_id` writes it; None when it is none."""
    letters = re.sub(r"[\s-]", "", typed).upper().translate(str.maketrans("ILO", "110"))
    return "-".join(_groups(letters)) if re.fullmatch(f"[{ALPHABET}]{{{NUM_GROUPS * GROUP}}}", letters) else None


def differing_groups(first: str, second: str) -> list[int]:
    """Return which groups of two IDs differ, counted from 1: one is likely a typing error, all are another certificate."""
    pairs = zip(first.split("-"), second.split("-"), strict=True)
    return [number for number, (one, other) in enumerate(pairs, 1) if one != other]


def _groups(letters: str) -> list[str]:
    return [letters[begin : begin + GROUP] for begin in range(0, len(letters), GROUP)]
