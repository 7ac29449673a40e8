"""Ed25519 keys: a learner's own, made on first use, and an instructor's; and the did:key that names one.

A key file is a PEM that only its owner may read. It is written once and never again.
"""

import os
from contextlib import suppress
from pathlib import Path

import base58
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from ckptlab.course.progress.own_key import MOST_BYTES, key_file, write_new
from ckptlab.errors import UsageError

DID_KEY = "did:key:"
ED25519 = bytes([0xED, 0x01])  # the multicodec of an Ed25519 public key
# The points of small order, in every encoding, without the sign bit: under such a key one signature fits many documents.
WEAK = (
    "00" * 32,
    "01" + "00" * 31,
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
)


def own_key() -> Ed25519PrivateKey:
    """Return the learner's own key, which lies beside the journal; it is made when there is none.

    Raises:
        UsageError: the file is no such key, or others may read it.
    """
    file = key_file()
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another notebook was faster
            make_key(file)
    return read_key(file)


def make_key(file: Path) -> Ed25519PrivateKey:
    """Make a key and write its file, as a whole or not at all; raise `FileExistsError` when a file is there."""
    key = Ed25519PrivateKey.generate()
    write_new(file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key


def read_key(file: Path) -> Ed25519PrivateKey:
    """Read a key's file.

    Raises:
        UsageError: it is no Ed25519 key, or others may read it.
    """
    with file.open("rb") as opened:
        mode, data = os.fstat(opened.fileno()).st_mode, opened.read(MOST_BYTES)
    if mode & 0o077:
        raise UsageError(
            f"{file}: others may read this key (mode {mode & 0o777:03o}, expected 600), so a certificate signed with it proves "
            f"nothing; if nobody has read it, run: chmod 600 {file}"
        )
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(
            f"{file}: expected an Ed25519 private key in PEM without a password; ckptlab certificate keygen makes one"
        )
    return key


def did_of(key: Ed25519PrivateKey) -> str:
    """Return the did:key of a key's public half."""
    return f"{DID_KEY}z{base58.b58encode(ED25519 + key.public_key().public_bytes_raw()).decode()}"


def public_bytes(did: str) -> bytes | None:
    """Return the 32 bytes of the Ed25519 key that a did:key names; None when it names none, or a weak one."""
    data = decode_base58(did.removeprefix(f"{DID_KEY}z")) if did.startswith(f"{DID_KEY}z") else None
    if data is None or len(data) != 34 or data[:2] != ED25519:
        return None
    key = data[2:]
    return None if (key[:31] + bytes([key[31] & 0x7F])).hex() in WEAK else key


def decode_base58(text: str) -> bytes | None:
    """Decode Bitcoin's base 58, where only one text stands for the bytes: no spaces around it, as the library takes them."""
    try:
        data = base58.b58decode(text) if len(text) < 200 else b""
    except ValueError:
        return None
    return data if base58.b58encode(data).decode() == text else None
