import base64
import hashlib
import io
import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from threading import Thread

import pytest
from certificates import KEY, NOW, claim, link_to, signed, to_bytes, unsigned
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ckptlab.cli.main import run
from ckptlab.course.certificate import keys, proof
from ckptlab.course.certificate.credential import SELF_ISSUED
from ckptlab.course.certificate.making import issue, make
from ckptlab.course.certificate.passed import claim_of
from ckptlab.course.certificate.results import read_results, to_json
from ckptlab.course.certificate.short_id import short_id
from ckptlab.course.certificate.verification import verify
from ckptlab.course.quiz.passing import Result
from ckptlab.errors import CkptlabError, UsageError

PAGE = "https://example.edu/verify.html"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CKPTLAB_VERIFY_PAGE", raising=False)
    return tmp_path / "home"


def results(claim: object) -> dict:
    """What grading writes, of one learner who passed and one who did not."""
    return {"format": 1, "results": [{"file": "ada.jsonl", "claim": claim}, {"file": "ben.jsonl", "claim": None}]}


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with an instructor's key.pem and results.json."""
    (tmp_path / "key.pem").write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "results.json").write_text(json.dumps(results(asdict(claim()))))
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    return tmp_path


@pytest.fixture
def certificate(desk: Path) -> Path:
    """The folder that the command makes of the claim."""
    files = [str(desk / name) for name in ("results.json", "site", "key.pem")]
    assert run(["certificate", "issue", *files[:2], "--key", files[2], "--issuer", "Example University"]) == 0
    return next((desk / "site" / "c").iterdir())


def trust(folder: Path, **changes: object) -> str:
    file = folder / "issuers.json"
    issuer = {"id": keys.did_of(KEY), "name": "my school", "revoked": [], **changes}
    file.write_text(json.dumps({"issuers": [issuer]}))
    return str(file)


def test_a_learner_certificate_is_self_issued_with_one_key_of_the_learners_own(tmp_path: Path, home: Path) -> None:
    first, second = make(claim(), tmp_path), make(claim(""), tmp_path)
    documents = [json.loads((made.folder / "credential.json").read_text()) for made in (first, second)]
    assert [document["issuer"]["name"] for document in documents] == [SELF_ISSUED] * 2
    assert len({document["issuer"]["id"] for document in documents}) == 1
    assert len({document["credentialSubject"]["id"] for document in documents}) == 2
    assert "identifier" not in documents[1]["credentialSubject"]
    key = home / "certificate-key.pem"
    assert key.stat().st_mode & 0o777 == 0o600
    secret = key.read_bytes().split(b"\n")[1]
    files = [file for made in (first, second) for file in made.folder.iterdir()]
    assert len(files) == 10
    assert not any(secret in file.read_bytes() for file in files)


def test_a_folder_holds_the_same_certificate_four_times_and_the_list_behind_the_evidence_hash(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("CKPTLAB_VERIFY_PAGE", PAGE)
    made = make(claim(), tmp_path)
    names = ("credential.json", "certificate.svg", "certificate.png")
    verdicts = [verify((made.folder / name).read_bytes(), NOW + timedelta(days=9000), {}, made.id) for name in names]
    verdicts.append(verify(made.link.encode(), NOW + timedelta(days=9000), {}, made.id))
    assert [verdict.outcome for verdict in verdicts] == ["unknown"] * 4
    assert made.link.startswith(PAGE + "#")
    evidence = (made.folder / "evidence.json").read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(evidence).digest()).decode().rstrip("=")
    document = json.loads((made.folder / "credential.json").read_text())
    assert document["evidence"][0]["id"] == f"ni:///sha-256;{digest}"
    assert json.loads(evidence)["recomputed"] == [asdict(item) for item in claim().recomputed]
    page = (made.folder / "index.html").read_text()
    baked = re.search(r'id="credential">(.*?)</script>', page)
    assert baked is not None
    assert json.loads(baked[1]) == document


def test_two_notebooks_that_make_the_first_key_at_once_have_the_same(home: Path) -> None:
    dids: list[str] = []
    threads = [Thread(target=lambda: dids.append(keys.did_of(keys.own_key()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(dids), len(set(dids))) == (8, 1)
    assert [file.name for file in home.iterdir()] == ["certificate-key.pem"]


def test_a_key_that_others_may_read_or_that_is_none_signs_nothing(home: Path) -> None:
    keys.own_key()
    file = home / "certificate-key.pem"
    file.chmod(0o640)
    with pytest.raises(UsageError, match=r"others may read this key .*chmod 600"):
        keys.own_key()
    file.chmod(0o600)
    other = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content in (other, b"", b"x" * 100):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="expected an Ed25519 private key"):
            keys.own_key()
        assert file.read_bytes() == content


def test_keygen_never_overwrites_a_key(tmp_path: Path, capsys) -> None:
    file = tmp_path / "issuer.pem"
    assert run(["certificate", "keygen", str(file)]) == 0
    did = capsys.readouterr().out.strip()
    before = file.read_bytes()
    assert keys.did_of(keys.read_key(file)) == did
    assert run(["certificate", "keygen", str(file)]) == 2
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["issuer.pem"]


def test_verify_tells_by_its_exit_code_how_far_to_trust(certificate: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    file = str(certificate / "certificate.png")
    assert run(["certificate", "verify", file]) == 3
    assert "not in your list" in capsys.readouterr().out
    trusted = ["certificate", "verify", file, "--trust", trust(tmp_path)]
    assert run(trusted) == 0
    out = capsys.readouterr().out
    for said in ("Valid. Signed by my school", "Ọlụchi Ṅwankwọ-Ịgwe", "92 %", "Example University", certificate.name):
        assert said in out
    assert run([*trusted, "--id", certificate.name.lower().replace("-", " ")]) == 0
    wrong = certificate.name[:-1] + ("0" if certificate.name[-1] != "0" else "1")
    capsys.readouterr()
    assert run([*trusted, "--id", wrong]) == 1
    assert "group 5 of yours differs" in capsys.readouterr().out
    assert run(["certificate", "verify", file, "--trust", trust(tmp_path, revoked=[certificate.name])]) == 4
    assert "my school has taken it back" in capsys.readouterr().out
    other = keys.did_of(keys.own_key())
    assert run(["certificate", "verify", file, "--trust", trust(tmp_path, id=other)]) == 3
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((certificate / "certificate.svg").read_bytes())))
    assert run(["certificate", "verify", "-"]) == 3
    capsys.readouterr()
    assert run(["certificate", "verify", link_to((certificate / "credential.json").read_bytes()), "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["outcome"], document["id"], document["facts"]["percent"]) == ("unknown", certificate.name, "92")
    tampered = (certificate / "credential.json").read_text().replace('"92"', '"93"')
    (tmp_path / "tampered.json").write_text(tampered)
    assert run(["certificate", "verify", str(tmp_path / "tampered.json"), "--trust", trust(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("Not valid.")
    assert "93" not in out


def test_what_is_out_of_date_is_told_from_what_is_not_valid() -> None:
    dated = signed({**unsigned(), "validUntil": "2026-03-01T00:00:00Z"})
    days = {-1: "withdrawn", 0: "unknown", 60: "withdrawn"}
    assert {day: verify(to_bytes(dated), NOW + timedelta(days=day), {}).outcome for day in days} == days
    assert verify(to_bytes(signed({**unsigned(), "validUntil": "2026-02-31T00:00:00Z"})), NOW, {}).outcome == "invalid"
    assert short_id(proof.digest(dated)) != short_id(proof.digest(signed()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "7KQ2-M0TX-3F5D-9WBA-1C2E"], "an ID alone proves nothing offline"),
        (["verify", "nowhere.json"], "nowhere.json: No such file"),
        (["verify", "results.json", "--id", "7KQ2"], "expected five groups of four"),
        (["verify", "results.json", "--trust", "results.json"], "results.json: "),
        (["issue", "key.pem", "out", "--key", "key.pem", "--issuer", "x"], "key.pem: results: not strict JSON"),
        (["issue", "results.json", "out", "--key", "results.json", "--issuer", "x"], "results.json: "),
        (["issue", "results.json", "out", "--key", "key.pem", "--issuer", SELF_ISSUED], "an issuer cannot be called"),
        (["issue", "results.json", "out", "--key", "key.pem", "--issuer", "a\nb"], "issuer.name"),
    ],
)
def test_bad_usage_is_one_line_and_never_an_answer_about_a_certificate(
    desk: Path, monkeypatch, capsys, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(desk)
    assert run(["certificate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert not Path("out/c").exists()


def test_an_address_that_is_none_makes_no_certificate(tmp_path: Path, monkeypatch) -> None:
    for address in ("javascript:alert(1)", "example.edu", "https://example.edu/#x", 'https://example.edu/"'):
        monkeypatch.setenv("CKPTLAB_VERIFY_PAGE", address)
        with pytest.raises(UsageError, match="CKPTLAB_VERIFY_PAGE"):
            make(claim(), tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"percent": 101}, "percent"),
        ({"percent": 92.5}, "percent"),
        ({"recomputed": []}, "only what was recomputed"),
        ({"email": "a@example.edu"}, "unknown members"),
        ({"banks": [{"bank": "02", "sha256": 1}]}, "banks"),
        ({"course": ""}, "course"),
    ],
)
def test_claims_that_say_more_than_was_recomputed_are_refused(change: dict, message: str) -> None:
    good = asdict(claim())
    assert read_results(json.dumps(results(good)).encode()) == [claim()]
    with pytest.raises(CkptlabError, match=message):
        read_results(json.dumps(results({**good, **change})).encode())
    with pytest.raises(CkptlabError, match="nobody has passed"):
        read_results(json.dumps(results(None)).encode())


def test_a_certificate_needs_no_torch() -> None:
    code = "import sys, ckptlab.cli.certificate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_notebook_loads_no_cryptography_before_it_makes_a_certificate() -> None:
    code = "import sys; from ckptlab.course import certificate; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_name_of_a_file_that_is_no_name_of_a_person_stands_on_no_certificate(tmp_path: Path) -> None:
    result = Result(
        has_passed=True,
        score=Fraction(1),
        exercises=("3.1",),
        missing=(),
        banks={},
        course="1.2.3",
        evidence=({"exercise": "3.1", "state": "right", "source_sha256": "cd" * 32},),
    )
    files = (
        "Ada Ọlụchi.jsonl",
        "two\nlines.jsonl",
        "\ufffe.jsonl",
        f"{'x' * 250}.jsonl",
        "\udcff.jsonl",
        ".jsonl",
        "=1+1.jsonl",
    )
    written = to_json([*((file, result) for file in files), ("ben.jsonl", replace(result, has_passed=False))])
    claims = read_results(written)
    assert [one.name for one in claims] == ["Ada Ọlụchi", "", "", "", "\\udcff", ".jsonl", "=1+1"]
    assert len(issue(claims[1:4], tmp_path, KEY, "A school")) == 3


def test_only_who_passed_has_a_claim_and_it_says_what_was_graded_again_without_the_answers() -> None:
    answer = {"bank": "02", "question": "rows", "variant": 1, "given": ["my own words"], "credit": "2/3"}
    exercise = {"exercise": "3.1", "state": "right", "source_sha256": "cd" * 32}
    result = Result(
        has_passed=True,
        score=Fraction(23, 27),
        exercises=("3.1",),
        missing=(),
        banks={"03": "b" * 64, "02": "a" * 64},
        course="1.2.3",
        evidence=(answer, exercise),
    )
    made = claim_of(result, " Ada ")
    assert (made.name, made.percent, made.version, made.count("answer"), made.count("exercise")) == ("Ada", 85, "1.2.3", 1, 1)
    assert "80 %" in made.criteria
    assert "03, 04 and 06" in made.criteria
    evidence = json.loads(made.evidence())
    assert [bank["bank"] for bank in evidence["banks"]] == ["02", "03"]
    assert evidence["recomputed"][0] == {
        "kind": "answer",
        "id": "02.rows.1",
        "sha256": hashlib.sha256(b'["my own words"]').hexdigest(),
        "credit": "2/3",
    }
    with pytest.raises(UsageError, match=r"not passed.*not right yet: 3\.1"):
        claim_of(replace(result, has_passed=False, missing=("3.1",)), "Ada")
