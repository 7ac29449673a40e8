"""zxing-cpp, which reads codes in pictures as phones do, on the QR code that we draw."""

import io
from pathlib import Path

import pytest
from certificates import claim
from PIL import Image

from ckptlab.course.certificate.making import make

pytestmark = pytest.mark.libraries


@pytest.mark.parametrize("page", ["https://example.edu/courses/checkpoints/verify.html", None])
@pytest.mark.parametrize("width", [2400, 1200])
def test_the_code_in_the_picture_is_the_certificates_link(tmp_path: Path, monkeypatch, page: str | None, width: int) -> None:
    from zxingcpp import read_barcodes

    monkeypatch.setenv("CKPTLAB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CKPTLAB_VERIFY_PAGE", page or "index.html")
    made = make(claim(), tmp_path)
    with Image.open(io.BytesIO((made.folder / "certificate.png").read_bytes())) as image:
        shown = image.convert("L").resize((width, image.height * width // image.width))
    assert [code.text for code in read_barcodes(shown)] == [made.link]
