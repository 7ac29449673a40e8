"""What differs between two steps, bit for bit and without torch, in bounded memory.

Tensors are read through their pieces, so the same values in other files are equal. Bytes are taken as they stand: whether
they are as written is `verify`'s question.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ckptlab.errors import StepError
from ckptlab.format.boxes import whole
from ckptlab.format.dtypes import ITEM_BYTES, numpy_dtype
from ckptlab.format.exact import MAX_STATE_BYTES, decode
from ckptlab.format.header import TensorSpec
from ckptlab.format.manifest import Manifest
from ckptlab.format.names import SECTIONS, STATE, index_file
from ckptlab.format.records import Piece, TensorRecord
from ckptlab.steps.members import compare_members
from ckptlab.steps.reading import WINDOW_BYTES, rank_tensors, tensor_windows
from ckptlab.steps.steps import Step
from ckptlab.storage import posix


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something with this name in a section (model, optim, state or ranks) is not the same in both steps."""

    section: str
    name: str
    what: str

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.section} {self.name}: {self.what}"


def compare(first: Step, second: Step) -> Iterator[Difference]:
    """Find what differs, in the order model, optim, state, ranks; nothing found means that both hold the same.

    Raises `StepError` when one of the steps is not whole.
    """
    manifests = _manifest(first), _manifest(second)
    paths = first.path, second.path
    for section in SECTIONS:
        tensors = [{**manifest.tensors[section], **_plain_files(manifest, section)} for manifest in manifests]
        yield from _named(section, _tensors(paths, tensors[0], tensors[1]))
    yield from _named("model", compare_members("", *(dict(manifest.aliases) for manifest in manifests)))
    yield from _named("state", compare_members("", *(_read_state(path, STATE) for path in paths)))
    yield from _named("ranks", _rank_files(paths, manifests))


def _manifest(step: Step) -> Manifest:
    if step.manifest is None or not step.whole:
        raise StepError(f"{step.path} is not whole ({step.fault}); only whole steps are compared")
    return step.manifest


def _named(section: str, differences: Iterator[tuple[str, str]]) -> Iterator[Difference]:
    return (Difference(section=section, name=name, what=what) for name, what in differences)


def _plain_files(manifest: Manifest, section: str) -> dict[str, TensorRecord]:
    """Take a file that only lies beside the tensors, such as `model/config.json`, as a tensor of its bytes."""
    return {
        file: TensorRecord(TensorSpec("U8", (record.num_bytes,)), (Piece(file, 0, whole((record.num_bytes,))),))
        for file, record in manifest.files.items()
        if file.startswith(f"{section}/") and not file.endswith(".safetensors") and file != index_file(section)
    }


def _tensors(
    paths: tuple[Path, Path], first: Mapping[str, TensorRecord], second: Mapping[str, TensorRecord]
) -> Iterator[tuple[str, str]]:
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            yield name, f"only in the {'first' if name in first else 'second'}"
        elif what := _tensor_difference(paths, first[name], second[name]):
            yield name, what


def _tensor_difference(paths: tuple[Path, Path], first: TensorRecord, second: TensorRecord) -> str | None:
    spec = first.spec
    if spec != second.spec:
        return f"{spec.dtype} {list(spec.shape)} and {second.spec.dtype} {list(second.spec.shape)}"
    item_bytes = ITEM_BYTES[spec.dtype]
    windows = zip(tensor_windows(paths[0], first), tensor_windows(paths[1], second), strict=True)
    for number, pair in enumerate(windows):
        differs = np.not_equal(*(np.frombuffer(window, np.uint8) for window in pair))
        if differs.any():
            at = int(differs.argmax()) // item_bytes
            index = np.unravel_index(number * (WINDOW_BYTES // item_bytes) + at, spec.shape)
            values = [np.frombuffer(window, numpy_dtype(spec.dtype))[at] for window in pair]
            return f"first at {[int(i) for i in index]}: {values[0]} and {values[1]}"
    return None


def _rank_files(paths: tuple[Path, Path], manifests: tuple[Manifest, Manifest]) -> Iterator[tuple[str, str]]:
    first, second = ({file for file in manifest.files if file.startswith("ranks/")} for manifest in manifests)
    for file in sorted(first | second):
        if file not in first or file not in second:
            yield file, f"only in the {'first' if file in first else 'second'}"
        elif file.endswith(".safetensors"):
            tensors = [{f"{file}/{name}": record for name, record in rank_tensors(path, file).items()} for path in paths]
            yield from _tensors(paths, tensors[0], tensors[1])
        else:
            yield from compare_members(file, *(_read_state(path, file) for path in paths))


def _read_state(path: Path, file: str) -> object:
    return decode(posix.read_file(path / file, MAX_STATE_BYTES))
