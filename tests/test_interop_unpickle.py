"""Pickles and archives of `torch.save` that others made: what is hostile in them is refused, and changes nothing here."""

import pickle
import struct
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from ckptlab.errors import LoadError
from ckptlab.interop.dcp_classes import stand_ins
from ckptlab.interop.deepspeed_classes import CLASSES
from ckptlab.interop.torch_file import TorchFile
from ckptlab.interop.unpickle import loads

PARTS = [("collections", "OrderedDict"), ("torch", "Size"), ("torch", "float32"), ("_codecs", "encode")]
PARTS += [("torch._utils", "_rebuild_parameter"), ("__builtin__", "bytes")]
SET_MARK = b"(N}Vmark\nI5\nstb"  # an attribute of what stands before it


@pytest.mark.parametrize(("module", "name"), [*CLASSES, *stand_ins(), *PARTS])
def test_nothing_that_a_pickle_sets_is_there_for_the_next_one(module: str, name: str) -> None:
    classes = {**CLASSES, **stand_ins()}
    asks = f"c{module}\n{name}\n".encode()
    with suppress(LoadError):
        loads(asks + SET_MARK + b".", classes, "a file")
    assert not hasattr(loads(asks + b".", classes, "a file"), "mark")
    assert not hasattr(classes.get((module, name)), "mark")


STAGE = b"cdeepspeed.runtime.zero.config\nZeroStageEnum\n"


def test_an_enumeration_is_read_by_value_and_by_name_and_nothing_else_has_attributes() -> None:
    assert loads(STAGE + b"(I2\ntR.", CLASSES, "a file") == 2
    assert loads(b"cbuiltins\ngetattr\n(" + STAGE + b"Vgradients\ntR.", CLASSES, "a file") == 2
    with pytest.raises(LoadError, match="getattr of what is no enumeration"):
        loads(b"cbuiltins\ngetattr\n(ccollections\nOrderedDict\nVfromkeys\ntR.", CLASSES, "a file")


def shared(levels: int) -> bytes:
    """Return a pickle of a list of ten times the list of ten times a list, and so on."""
    value = [0]
    for _ in range(levels):
        value = [value] * 10
    return pickle.dumps(value, 2)


def copied(times: int) -> bytes:
    """Return a pickle that makes bytes of one long text so many times."""
    text = b"x" * 100_000
    put = [b"c_codecs\nencode\nq\0", b"X" + len(text).to_bytes(4, "little") + text + b"q\1", b"X\6\0\0\0latin1q\2"]
    return b"".join(put) + b"h\0h\1h\2\x86R0" * times + b"N."


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (copied(100), "one long value copied over and over"),
        (b"c_codecs\nencode\n(Vx\nVutf-7\ntR.", "bytes as 'utf-7', expected latin1"),
        (shared(40), "over and over"),
        (b"]q\0h\0a.", "nested deeper than 100 levels, or inside itself"),
        (b"(" * 200 + b"l" * 200 + b".", "nested deeper than 100 levels"),
    ],
)
def test_a_pickle_that_could_not_be_walked_or_asks_for_a_codec_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(LoadError, match=f"a file: .*{reason}"):
        loads(data, {}, "a file")


def test_a_default_that_many_param_groups_share_is_read() -> None:
    assert loads(pickle.dumps([(0.9, 0.95)] * 30_000, 2), {}, "a file") == [(0.9, 0.95)] * 30_000


def test_what_is_refused_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.onnx", raising=False)
    monkeypatch.delitem(vars(torch), "onnx", raising=False)
    with pytest.raises(LoadError, match=r"asks for torch\.onnx"):
        loads(b"ctorch\nonnx\n.", {}, "a file")
    assert "torch.onnx" not in sys.modules


def rewritten(path: Path, **changed: bytes) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, changed.get(name.partition("/")[2], data))


def told(path: Path, at: int, number: int) -> None:
    """Change what the zip's directory says of its first entry: 10 its compression, 20 and 24 its bytes, 42 where it begins."""
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.index(b"PK\1\2") + at, number)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: rewritten(path, byteorder=b"big"), "byte order b'big'"),
        (lambda path: told(path, 10, zipfile.ZIP_DEFLATED), "data.pkl' is compressed"),
        (lambda path: told(path, 24, 10), "data.pkl' is compressed"),
        (lambda path: (told(path, 20, 10**6), told(path, 24, 10**6)), "1000000 bytes at .* reaches beyond"),
        (lambda path: told(path, 42, 10**6), "at 1000000 reaches beyond"),
        (lambda path: torch.save(torch.ones(1).expand(10**6), path), r"\[1000000\], strides \[0\] .* do not fit"),
        (lambda path: torch.save(torch.ones(2, dtype=torch.complex128), path), "ComplexDoubleStorage"),
    ],
)
def test_an_archive_that_is_none_of_torch_save_or_lies_is_refused(
    damage: Callable[[Path], object], reason: str, tmp_path
) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.arange(8.0), path)
    assert TorchFile(path, {}).value.spec.shape == (8,)
    damage(path)
    with pytest.raises(LoadError, match=rf"x\.pt: .*{reason}"):
        TorchFile(path, {})
