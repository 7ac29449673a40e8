"""What differs between two steps, bit for bit and without torch, in bounded memory.

Tensors are read through their pieces and codecs, so the same values in other files are equal. Bytes are taken as they stand:
whether they are as written is `verify`'s question. Only what has to be decoded is verified.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ckptlab.errors import StepError
from ckptlab.format.boxes import whole
from ckptlab.format.dtypes import ITEM_BYTES, numpy_dtype
from ckptlab.format.exact import MAX_STATE_BYTES, decode
from ckptlab.format.header import TensorSpec
from ckptlab.format.manifest import Manifest
from ckptlab.format.names import SECTIONS, STATE, index_file
from ckptlab.format.records import Piece, TensorRecord
from ckptlab.steps.frames import Frames
from ckptlab.steps.members import compare_members
from ckptlab.steps.reading import WINDOW_BYTES, rank_tensors, tensor_windows
from ckptlab.steps.steps import Step
from ckptlab.storage import Place, store


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
    with ExitStack() as stack:
        frames = [stack.enter_context(Frames(path, manifest)) for path, manifest in zip(paths, manifests, strict=True)]
        for section in SECTIONS:
            tensors = [{**manifest.tensors[section], **_plain_files(manifest, section)} for manifest in manifests]
            windows = [partial(_windows, path, one, section) for path, one in zip(paths, frames, strict=True)]
            yield from _named(section, _tensors(windows, tensors[0], tensors[1]))
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


Windows = Callable[[str, TensorRecord], Iterator[memoryview]]
"""From the name of a tensor and its record to its bytes, a window at a time."""


def _windows(path: Place, frames: Frames, section: str, name: str, record: TensorRecord) -> Iterator[memoryview]:
    return tensor_windows(path, record) if record.encoding is None else frames.windows((section, name))


def _raw_windows(path: Place, name: str, record: TensorRecord) -> Iterator[memoryview]:
    return tensor_windows(path, record)


def _tensors(
    windows: Sequence[Windows], first: Mapping[str, TensorRecord], second: Mapping[str, TensorRecord]
) -> Iterator[tuple[str, str]]:
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            yield name, f"only in the {'first' if name in first else 'second'}"
        elif what := _tensor_difference(windows, name, first[name], second[name]):
            yield name, what


def _tensor_difference(windows: Sequence[Windows], name: str, first: TensorRecord, second: TensorRecord) -> str | None:
    spec = first.spec
    if spec != second.spec:
        return f"{spec.dtype} {list(spec.shape)} and {second.spec.dtype} {list(second.spec.shape)}"
    found = _Differing(spec)
    pairs = zip(windows[0](name, first), windows[1](name, second), strict=True)
    for number, (one, other) in enumerate(pairs):
        if one != other:
            found.add(number * (WINDOW_BYTES // ITEM_BYTES[spec.dtype]), one, other)
    return str(found) if found.count else None


class _Differing:
    """The elements of a tensor that differ: how many, the first, and the one that differs most."""

    def __init__(self, spec: TensorSpec) -> None:
        self._spec, self._dtype = spec, numpy_dtype(spec.dtype)
        self._first = self._largest = ""
        self._distance: Any = -1
        self.count = 0

    def add(self, begin: int, one: memoryview, other: memoryview) -> None:
        """Take in the elements from number `begin` on."""
        items = [np.frombuffer(window, f"u{self._dtype.itemsize}") for window in (one, other)]
        (at,) = np.nonzero(items[0] != items[1])
        values = [np.frombuffer(window, self._dtype)[at] for window in (one, other)]
        self.count += len(at)
        self._first = self._first or self._words(begin + at[0], values, 0)
        distances = _distances(*values)
        most = int(distances.argmax())
        if distances[most] > self._distance:
            self._distance, self._largest = distances[most], self._words(begin + at[most], values, most)

    def __str__(self) -> str:
        if self.count == 1:
            return f"first at {self._first}"
        most = f", most at {self._largest}" if self._largest not in ("", self._first) else ""
        return f"first at {self._first}; {self.count} of {math.prod(self._spec.shape)} elements differ{most}"

    def _words(self, number: int, values: Sequence[Any], at: int) -> str:
        index = np.unravel_index(number, self._spec.shape)
        one, other = (str(value[at]) for value in values)
        if one == other:  # NaN, of which there are many
            one, other = (f"{value} (bytes {values[n][at].tobytes().hex()})" for n, value in enumerate((one, other)))
        return f"{[int(i) for i in index]}: {one} and {other}"


def _distances(one: Any, other: Any) -> Any:
    """Return how far apart values are, exact for integers; -1 where one is no number."""
    if one.dtype.kind in "iu":
        unsigned = np.dtype(f"u{one.dtype.itemsize}")
        return np.maximum(one, other).view(unsigned) - np.minimum(one, other).view(unsigned)
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        distances = np.abs(one.astype(wide) - other.astype(wide))
    return np.where(np.isnan(distances), -1.0, distances)


def _rank_files(paths: tuple[Place, Place], manifests: tuple[Manifest, Manifest]) -> Iterator[tuple[str, str]]:
    first, second = ({file for file in manifest.files if file.startswith("ranks/")} for manifest in manifests)
    for file in sorted(first | second):
        if file not in first or file not in second:
            yield file, f"only in the {'first' if file in first else 'second'}"
        elif file.endswith(".safetensors"):
            tensors = [{f"{file}/{name}": record for name, record in rank_tensors(path, file).items()} for path in paths]
            yield from _tensors([partial(_raw_windows, path) for path in paths], tensors[0], tensors[1])
        else:
            yield from compare_members(file, *(_read_state(path, file) for path in paths))


def _read_state(path: Place, file: str) -> object:
    return decode(store.read_file(path / file, MAX_STATE_BYTES))
