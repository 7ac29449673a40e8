"""`results.json`, which `ckptlab grade` writes and `ckptlab certificate issue` reads: of each file the claim, if it passed.

The name on a certificate is only what somebody typed: here that is the name of the file that was handed in.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import PurePath

from ckptlab.course.certificate.claim import Claim, read_claim
from ckptlab.course.certificate.passed import claim_of
from ckptlab.course.quiz.passing import Result
from ckptlab.errors import FormatError, UsageError
from ckptlab.format.strict_json import as_list, as_natural, as_record, as_text, parse_json

FORMAT = 1
MOST_BYTES = 16 << 20


def to_json(results: Iterable[tuple[str, Result]]) -> bytes:
    """Write results, by the names of the files."""
    entries = [{"file": _shown(file), "claim": _claim_of(file, result)} for file, result in results]
    return json.dumps({"format": FORMAT, "results": entries}, indent=1, ensure_ascii=False).encode() + b"\n"


def read_results(data: bytes) -> list[Claim]:
    """Read the claims of those who passed.

    Raises:
        FormatError: it is no such file, or nobody passed.
        UsageError: a claim cannot be made.
    """
    document = as_record(parse_json(data, "results", MOST_BYTES), "results", {"format", "results"})
    if as_natural(document["format"], "results.format", FORMAT + 1) != FORMAT:
        raise FormatError(f"results.format: found {document['format']}, expected {FORMAT}")
    claims = [claim for index, item in enumerate(as_list(document["results"], "results")) if (claim := _read(item, index))]
    if not claims:
        raise FormatError("results: nobody has passed, so there is no certificate to issue")
    return claims


def _read(value: object, index: int) -> Claim | None:
    where = f"results[{index}]"
    record = as_record(value, where, {"file", "claim"})
    as_text(record["file"], f"{where}.file")
    return None if record["claim"] is None else read_claim(record["claim"], f"{where}.claim")


def _claim_of(file: str, result: Result) -> dict[str, object] | None:
    if not result.has_passed:
        return None
    try:
        return asdict(claim_of(result, PurePath(_shown(file)).stem))
    except UsageError:  # a file's name may be too long or no text, which is no reason to refuse a certificate
        return asdict(claim_of(result, ""))


def _shown(file: str) -> str:
    return file.encode("utf-8", "backslashreplace").decode()
