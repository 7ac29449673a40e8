"""Certificates made for tests, every single change of one, and what a hostile sender would send."""

import base64
import copy
import hashlib
import json
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime

import base58
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ckptlab.course.certificate import keys, proof
from ckptlab.course.certificate.claim import Bank, Claim, Recomputed
from ckptlab.course.certificate.credential import SELF_ISSUED, make_document

NOW = datetime(2026, 1, 30, 10, 0, tzinfo=UTC)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
IDS = ("urn:uuid:5b1e7c8e-7a51-4c0f-9a6e-2f2a1b3c4d5e", "urn:uuid:0d0b7c1a-2f0e-4f67-9d4c-8d8f2b6f1a10")


def claim(name: str = "Ọlụchi Ṅwankwọ-Ịgwe") -> Claim:
    return Claim(
        name=name,
        course="Checkpoint sharding and resumable training",
        version="0.1.0",
        criteria="At least 80 % in the final quiz, and the exercises of labs 03, 04 and 06 right.",
        percent=92,
        banks=(Bank(bank="02", sha256="ab" * 32),),
        recomputed=(
            Recomputed(kind="exercise", id="3.1", sha256="cd" * 32, credit="1"),
            Recomputed(kind="answer", id="02.rows-of-last-rank.0", sha256="ef" * 32, credit="1/2"),
        ),
    )


def unsigned(name: str = "Ọlụchi Ṅwankwọ-Ịgwe", issuer_name: str = SELF_ISSUED) -> dict:
    return make_document(claim(name), keys.did_of(KEY), issuer_name, NOW, IDS)


def signed(document: dict | None = None, key: Ed25519PrivateKey = KEY) -> dict:
    return proof.sign(unsigned() if document is None else document, key, "2026-01-30T10:00:00Z")


def to_bytes(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


def single_changes(document: dict) -> Iterator[tuple[str, dict]]:
    """Every change of one value, one key or the order of one list, each alone, with its place."""
    for place in _places(document):
        for what, change in _changes(_get(document, place)):
            changed = copy.deepcopy(document)
            parent = _get(changed, place[:-1])
            if place:
                parent[place[-1]] = change
            else:
                changed = change
            yield f"{'.'.join(map(str, place))}: {what}", changed


def _places(value: object, place: tuple = ()) -> Iterator[tuple]:
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*place, key))


def _get(value: object, place: tuple) -> object:
    for key in place:
        value = value[key]
    return value


def _changes(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, bool):
        yield "other", not value
        yield "text", str(value).lower()
    elif isinstance(value, str):
        yield "a letter more", value + "x"
        yield "a space more", value + " "
        yield "a letter less", value[:-1]
        yield "a letter changed", ("A" if value[-1] != "A" else "B").join((value[:-1], ""))
        if value.swapcase() != value:
            yield "other case", value.swapcase()
        yield "number", 1
        yield "none", None
        yield "list", [value]
    elif isinstance(value, list):
        yield "an item more", [*value, *value[:1]]
        yield "an item less", value[:-1]
        yield "not a list", value[0]
        if len(value) > 1:
            yield "other order", value[::-1]
    elif isinstance(value, dict):
        yield "a member more", {**value, "extra": "x"}
        yield "nothing", {}
        for key in value:
            yield f"without {key}", {other: item for other, item in value.items() if other != key}
            yield f"{key} renamed", {other + "x" * (other == key): item for other, item in value.items()}


def signed_for_all_by_a_weak_key() -> dict:
    """A document under a key of small order, with the signature that is right for every document under it."""
    weak = bytes([1, *[0] * 31])
    anything = weak + bytes(32)
    Ed25519PublicKey.from_public_bytes(weak).verify(anything, b"any text")  # raises nothing
    key = "z" + base58.b58encode(bytes([0xED, 1]) + weak).decode()
    document = signed({**unsigned(), "issuer": {"id": f"did:key:{key}", "type": ["Profile"], "name": "x"}})
    document["proof"].update(verificationMethod=f"did:key:{key}#{key}", proofValue="z" + base58.b58encode(anything).decode())
    return document


def signed_by_hand(document: dict, old: bytes = b"", new: bytes = b"", **options: object) -> bytes:
    """Sign a document with wrong options, or with `new` bytes in the place of `old` in its canonical form; as JSON."""
    proved = {name: value for name, value in signed(document)["proof"].items() if name != "proofValue"} | options
    text = rfc8785.dumps(document).replace(old, new)
    signature = KEY.sign(hashlib.sha256(rfc8785.dumps(proved)).digest() + hashlib.sha256(text).digest())
    proved["proofValue"] = "z" + base58.b58encode(signature).decode()
    return text[:-1] + b',"proof":' + rfc8785.dumps(proved) + b"}"


def link_to(data: bytes) -> str:
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(data) + packer.flush()
    return "verify.html#" + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def hostile_texts() -> dict[str, bytes]:
    """Documents that no reader may take, each for another reason; some would be right with a careless reader."""
    good = to_bytes(signed()).decode()
    name = '"name": "Checkpoint sharding'
    did, other = keys.did_of(KEY), keys.did_of(OTHER_KEY).removeprefix("did:key:")
    two_lines = unsigned()
    two_lines["credentialSubject"]["identifier"][0]["identityHash"] = "two\nlines"
    assert name in good
    return {
        "deep lists": b'{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        "deep objects": b'{"a":' * 6_000 + b'"x"' + b"}" * 6_000,
        "a huge number": good.replace('"percent"', "9" * 5000).encode()[:-1] + b',"x":' + b"9" * 5000 + b"}",
        "a float": good.encode()[:-1] + b',"x":1.5}',
        "beyond floats": good.encode()[:-1] + b',"x":1e400}',
        "NaN": good.encode()[:-1] + b',"x":NaN}',
        "a member twice, the last one signed": good.replace(name, '"name": "Forged", ' + name).encode(),
        "a member twice, once escaped": good.replace(name, '"n\\u0061me": "Forged", ' + name).encode(),
        "half a surrogate pair": to_bytes(signed()).replace("Ọlụchi".encode(), b"\\ud800"),
        "half a pair, signed as JavaScript writes it": signed_by_hand(unsigned("HALF"), b"HALF", b"\\ud800"),
        "half a pair where another character was signed": to_bytes(signed(unsigned("\ufffd"))).replace(
            "\ufffd".encode(), b"\\ud800"
        ),
        "half a pair as bytes": to_bytes(signed()).replace("Ọlụchi".encode(), b"\xed\xa0\x80"),
        "no UTF-8": to_bytes(signed()).replace("Ọlụchi".encode(), b"\xff\xfe"),
        "something behind it": good.encode() + b"{}",
        "a comma too many": good.encode()[:-1] + b",}",
        "a comment": good.encode()[:-1] + b"/**/}",
        "two proofs": to_bytes({**signed(), "proof": [signed()["proof"]] * 2}),
        "no proof": to_bytes(unsigned()),
        "a key that is not the one behind the #": signed_by_hand(unsigned(), verificationMethod=f"{did}#{other}"),
        "another purpose, signed": signed_by_hand(unsigned(), proofPurpose="authentication"),
        "another suite, signed": signed_by_hand(unsigned(), cryptosuite="eddsa-rdfc-2022"),
        "other contexts, signed": signed_by_hand({**unsigned(), "@context": unsigned()["@context"][:1]}),
        "a weak key": to_bytes(signed_for_all_by_a_weak_key()),
        "two pieces of evidence, signed": to_bytes(signed({**unsigned(), "evidence": unsigned()["evidence"] * 2})),
        "a member that no reader knows, signed": to_bytes(signed({**unsigned(), "credentialStatus": "revoked"})),
        "a name in two lines, signed": to_bytes(signed(two_lines)),
        "a list": to_bytes([signed()]),
        "nothing": b"",
        "too large": good.encode()[:-1] + b" " * (64 << 10) + b"}",
    }
