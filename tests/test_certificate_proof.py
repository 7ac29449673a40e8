import hashlib
import json
import random
from pathlib import Path

import base58
import pytest
from certificates import (
    KEY,
    NOW,
    OTHER_KEY,
    hostile_texts,
    link_to,
    signed,
    signed_for_all_by_a_weak_key,
    single_changes,
    to_bytes,
    unsigned,
)

from ckptlab.course.certificate import keys, proof
from ckptlab.course.certificate.short_id import short_id
from ckptlab.course.certificate.verification import verify

# W3C, Data Integrity EdDSA Cryptosuites v1.0, test vectors, "Representation: eddsa-jcs-2022".
VECTOR = json.loads((Path(__file__).parent / "vectors/w3c-eddsa-jcs-2022.json").read_text())
PROOF_HASH = "66ab154f5c2890a140cb8388a22a160454f80575f6eae09e5a097cabe539a1db"
DOCUMENT_HASH = "59b7cb6251b8991add1ce0bc83107e3db9dbbab5bd2c28f687db1a03abc92f19"
ORDER = 2**252 + 27742317777372353535851937790883648493  # of Ed25519's group


def test_the_vector_that_w3c_published_verifies() -> None:
    assert proof.find_fault(VECTOR) is None
    assert proof.digest(VECTOR).hex() == DOCUMENT_HASH
    options = {name: value for name, value in VECTOR["proof"].items() if name != "proofValue"}
    assert hashlib.sha256(proof.canonical(options)).hexdigest() == PROOF_HASH


def test_a_right_proof_is_not_enough_where_the_issuer_is_not_its_key() -> None:
    assert verify(to_bytes(VECTOR), NOW, {}).outcome == "invalid"
    forged = signed(unsigned(), OTHER_KEY)
    assert proof.find_fault(forged) is None
    verdict = verify(to_bytes(forged), NOW, {})
    assert (verdict.outcome, verdict.facts) == ("invalid", None)
    assert "another key than its issuer's" in verdict.why


@pytest.mark.parametrize("document", [VECTOR, signed()], ids=["W3C's vector", "a certificate"])
def test_every_single_change_of_a_value_a_key_or_an_order_breaks_the_proof(document: dict) -> None:
    changes = dict(single_changes(document))
    assert len(changes) > 100
    assert [what for what, changed in changes.items() if proof.find_fault(changed) is None] == []


def test_every_single_change_is_refused_by_verify_and_nothing_of_it_is_shown() -> None:
    verdicts = {what: verify(to_bytes(changed), NOW, {}) for what, changed in single_changes(signed())}
    assert [what for what, verdict in verdicts.items() if (verdict.outcome, verdict.facts) != ("invalid", None)] == []


def test_spaces_escapes_and_the_order_of_members_are_not_signed() -> None:
    document = signed()
    for seed in range(3):
        shuffled = json.dumps(_shuffle(document, random.Random(seed)), indent=3).encode()
        assert shuffled != to_bytes(document)
        verdict = verify(b"\n " + shuffled, NOW, {})
        assert (verdict.outcome, verdict.id) == ("unknown", short_id(proof.digest(document)))


@pytest.mark.parametrize("what", hostile_texts())
def test_what_is_no_strict_json_or_no_certificate_is_refused(what: str) -> None:
    text = hostile_texts()[what]
    assert verify(text, NOW, {}).outcome == "invalid"
    assert verify(link_to(text).encode(), NOW, {}).outcome == "invalid"


def test_no_second_signature_can_be_made_of_one() -> None:
    document = signed()
    signature = base58.b58decode(document["proof"]["proofValue"][1:])
    high = signature[:32] + (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(32, "little")
    for other in (high, signature[::-1], signature + b"\0", b"\0" + signature):
        document["proof"]["proofValue"] = "z" + base58.b58encode(other).decode()
        assert proof.find_fault(document) is not None
        assert verify(to_bytes(document), NOW, {}).outcome == "invalid"


def test_a_key_under_which_one_signature_fits_everything_is_refused() -> None:
    document = signed_for_all_by_a_weak_key()
    assert "no usable Ed25519" in (proof.find_fault(document) or "")
    assert verify(to_bytes(document), NOW, {}).outcome == "invalid"


@pytest.mark.parametrize(
    "did",
    [
        "did:key:zDnaepBuvsQ8cpsWrVKw8fbpGpvPeNSjVPTWoq6cRqaYzBKVP",  # P-256
        "did:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc",  # X25519
        keys.did_of(KEY)[:-1],
        keys.did_of(KEY) + "1",
        "did:web:example.edu",
    ],
)
def test_a_key_of_another_kind_signs_nothing(did: str) -> None:
    document = signed()
    document["proof"]["verificationMethod"] = f"{did}#{did.removeprefix('did:key:')}"
    assert "no usable Ed25519" in (proof.find_fault(document) or "")
    document["issuer"]["id"] = did
    assert verify(to_bytes(document), NOW, {}).outcome == "invalid"


def _shuffle(value: object, order: random.Random) -> object:
    if isinstance(value, dict):
        names = list(value)
        order.shuffle(names)
        return {name: _shuffle(value[name], order) for name in names}
    return [_shuffle(item, order) for item in value] if isinstance(value, list) else value
