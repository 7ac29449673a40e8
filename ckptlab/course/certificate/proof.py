"""Data Integrity proofs, cryptosuite eddsa-jcs-2022: how a document is signed, and whether a signature is right.

Signed is the canonical form (RFC 8785): spaces and the order of members are not in it, everything else is. Whether the signer
may say what the document says is not asked here.
"""

import hashlib
from collections.abc import Mapping

import base58
import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ckptlab.course.certificate import keys
from ckptlab.errors import FormatError

Document = dict[str, object]


def sign(document: Mapping[str, object], key: Ed25519PrivateKey, created: str) -> Document:
    """Return the document with a proof by this key; `created` is a time like 2026-11-30T10:00:00Z."""
    did = keys.did_of(key)
    options = {
        "type": "DataIntegrityProof",
        "cryptosuite": "eddsa-jcs-2022",
        "created": created,
        "verificationMethod": f"{did}#{did.removeprefix(keys.DID_KEY)}",
        "proofPurpose": "assertionMethod",
        "@context": document["@context"],
    }
    signature = base58.b58encode(key.sign(_signed_bytes(document, options))).decode()
    return {**document, "proof": {**options, "proofValue": f"z{signature}"}}


def find_fault(document: Document) -> str | None:
    """Return what is wrong with a document's proof, in words; None when the key that it names has signed the document."""
    proof = document.get("proof")
    if not isinstance(proof, dict):
        return "it has no proof, or several"
    wanted = {"type": "DataIntegrityProof", "cryptosuite": "eddsa-jcs-2022", "proofPurpose": "assertionMethod"}
    for name, value in wanted.items():
        if proof.get(name) != value:
            return f"proof.{name}: expected {value}"
    public, signature = _key_of(proof.get("verificationMethod")), _signature_of(proof.get("proofValue"))
    if public is None or signature is None:
        return "its key is no usable Ed25519 did:key" if public is None else "proof.proofValue: no signature"
    unsigned = {name: value for name, value in document.items() if name != "proof"}
    options = {name: value for name, value in proof.items() if name != "proofValue"}
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _signed_bytes(unsigned, options))
    except (InvalidSignature, ValueError, FormatError):
        return "the signature does not fit: something in it was changed after it was signed, or another key signed it"
    return None


def digest(document: Mapping[str, object]) -> bytes:
    """Return the SHA-256 of the canonical form of a document without its proof.

    Raises:
        FormatError: it has none: a number beyond 2**53, half a surrogate pair, deep nesting.
    """
    return hashlib.sha256(canonical({name: value for name, value in document.items() if name != "proof"})).digest()


def canonical(value: object) -> bytes:
    """Return the canonical form (RFC 8785) of a JSON value."""
    try:
        return rfc8785.dumps(value)  # type: ignore[arg-type]  # parsed JSON, which mypy sees as object
    except (ValueError, RecursionError) as error:
        raise FormatError(f"has no canonical form: {error}") from None


def _signed_bytes(document: Mapping[str, object], options: Mapping[str, object]) -> bytes:
    return hashlib.sha256(canonical(options)).digest() + hashlib.sha256(canonical(document)).digest()


def _key_of(method: object) -> bytes | None:
    """Return the key that a did:key URL names: the part behind "#" must be the key itself again."""
    did, _, fragment = method.partition("#") if isinstance(method, str) else ("", "", "")
    return keys.public_bytes(did) if did == keys.DID_KEY + fragment else None


def _signature_of(value: object) -> bytes | None:
    text = value.removeprefix("z") if isinstance(value, str) and value.startswith("z") else ""
    data = keys.decode_base58(text)
    return data if data is not None and len(data) == 64 else None
