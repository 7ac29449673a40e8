"""What a certificate's document must look like, as data: the command and the page read the same table.

A shape is a nested document. A text that begins with `^` is a pattern for the whole value, any other text, `true` or `false`
is the value itself; a list has exactly these items; an object has exactly these members, those whose name ends in `?` or not.
"""

import re

Shape = str | bool | list["Shape"] | dict[str, "Shape"]

CONTEXTS = ["https://www.w3.org/ns/credentials/v2", "https://purl.imsglobal.org/spec/ob/v3p0/context-3.0.3.json"]
ACHIEVEMENT = "urn:uuid:11fbe1bc-de5e-4bb2-b3a3-851a5ad681db"  # this course, in every certificate
FINAL_SCORE = "urn:uuid:e1512634-0539-4503-8fe0-7815f25eee9a"
# No control, no line separator, nothing that turns the direction of what is shown after it, nothing that XML does not have.
UNSHOWN = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff"
NAME, TEXT = (f"^[^{UNSHOWN}]{{1,{most}}}$" for most in (100, 600))
MULTIKEY = "z6Mk[1-9A-HJ-NP-Za-km-z]{44}"  # an Ed25519 public key
DID = f"^did:key:{MULTIKEY}$"
_URN = "^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_TIME = "^[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$"

PROOF: Shape = {
    "type": "DataIntegrityProof",
    "cryptosuite": "eddsa-jcs-2022",
    "created": _TIME,
    "verificationMethod": f"^did:key:{MULTIKEY}#{MULTIKEY}$",
    "proofPurpose": "assertionMethod",
    "@context": [*CONTEXTS],
    "proofValue": "^z[1-9A-HJ-NP-Za-km-z]{64,88}$",
}
UNSIGNED: dict[str, Shape] = {
    "@context": [*CONTEXTS],
    "id": _URN,
    "type": ["VerifiableCredential", "OpenBadgeCredential"],
    "name": NAME,
    "issuer": {"id": DID, "type": ["Profile"], "name": NAME},
    "validFrom": _TIME,
    "validUntil?": _TIME,
    "credentialSubject": {
        "id": _URN,
        "type": ["AchievementSubject"],
        "identifier?": [{"type": "IdentityObject", "hashed": False, "identityHash": NAME, "identityType": "name"}],
        "achievement": {
            "id": ACHIEVEMENT,
            "type": ["Achievement"],
            "achievementType": "CertificateOfCompletion",
            "name": NAME,
            "description": TEXT,
            "criteria": {"narrative": TEXT},
            "inLanguage": "^[a-z]{2,3}$",
            "version": "^[0-9A-Za-z.+-]{1,40}$",
            "resultDescription": [
                {
                    "id": FINAL_SCORE,
                    "type": ["ResultDescription"],
                    "name": NAME,
                    "resultType": "Percent",
                    "valueMin": "0",
                    "valueMax": "100",
                }
            ],
        },
        "result": [{"type": ["Result"], "resultDescription": FINAL_SCORE, "value": "^(100|[1-9]?[0-9])$"}],
    },
    "evidence": [{"id": "^ni:///sha-256;[0-9A-Za-z_-]{43}$", "type": ["Evidence"], "name": NAME, "narrative": TEXT}],
}
CERTIFICATE: Shape = {**UNSIGNED, "proof": PROOF}


def misfit(value: object, shape: Shape, where: str = "") -> str | None:
    """Return the first place where a value is not of a shape, such as "issuer.id"; None when it is."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return where or "the document"
        known = {name.removesuffix("?") for name in shape}
        needed = {name for name in shape if not name.endswith("?")}
        if odd := sorted((value.keys() - known) | (needed - value.keys())):
            return f"{where}.{odd[0]}".lstrip(".")
        pairs = [
            (value[key], part, f"{where}.{key}") for name, part in shape.items() if (key := name.removesuffix("?")) in value
        ]
    elif isinstance(shape, list):
        if not isinstance(value, list) or len(value) != len(shape):
            return where
        pairs = [(item, part, f"{where}.{index}") for index, (item, part) in enumerate(zip(value, shape, strict=True))]
    else:
        return None if _is(value, shape) else where
    return next((found for item, part, at in pairs if (found := misfit(item, part, at.lstrip("."))) is not None), None)


def _is(value: object, shape: str | bool) -> bool:
    if isinstance(shape, str) and shape.startswith("^"):
        return isinstance(value, str) and re.fullmatch(shape[1:-1], value) is not None
    return type(value) is type(shape) and value == shape
