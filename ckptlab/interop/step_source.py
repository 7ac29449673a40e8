"""Steps of ckptlab itself as one more system, read: through their pieces, every block verified."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ckptlab.checkpoint.plan import read_strips
from ckptlab.checkpoint.tensor_bytes import TensorBytes, from_exact
from ckptlab.checkpoint.tensors import LocalTensor, describe
from ckptlab.errors import LoadError, StepError
from ckptlab.format import names
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.exact import MAX_STATE_BYTES, decode
from ckptlab.format.manifest import CONVERTED_FROM, Manifest
from ckptlab.format.records import TensorRecord
from ckptlab.format.strips import Rows, Strip
from ckptlab.interop.foreign import Foreign, blank
from ckptlab.steps.frames import Frames
from ckptlab.steps.steps import find_step, newest_step
from ckptlab.steps.verified import StepReader
from ckptlab.storage import on_disk, store

SYSTEM = "ckptlab"


def open_step(path: Path) -> Foreign:
    """Open a step, or the newest whole step of a run; every block is verified when it is read.

    Raises:
        StepError: there is no such step, or it is not whole.
        CorruptError: the state, or a file that goes along with the model, is not as it was written.
    """
    path, manifest = _whole_step(on_disk(path))
    with StepReader(path, manifest) as reader:
        state = from_exact(decode(reader.read_whole(names.STATE, MAX_STATE_BYTES)))
        if not isinstance(state, dict):
            raise LoadError(f"{path / names.STATE} holds a {type(state).__name__}, expected an object; do not use this step")
        model_files = dict(_model_files(path, manifest))
        for name in model_files:
            reader.check(f"model/{name}")
    return Foreign(
        system=str(manifest.saved_by.get(CONVERTED_FROM, SYSTEM)),
        path=path,
        tensors={section: {name: held.spec for name, held in named.items()} for section, named in manifest.tensors.items()},
        read=_Tensors(path, manifest).read,
        aliases=manifest.aliases,
        exact_if={name: value for name, value in manifest.exact_if.items() if name != "world_size"},  # no rank's own state goes
        state=state if _is_of_a_run(state) else None,
        model_files=model_files,
        left=tuple(_left(manifest, state)),
    )


def _whole_step(path: Path) -> tuple[Path, Manifest]:
    """Return the step that was named, or the newest whole one of the run, with its manifest."""
    is_step = names.parse_step(store.absolute(path).name) is not None
    step = find_step(path) if is_step else newest_step(path)
    if step is None:
        raise StepError(f"{path} has no whole step")
    if step.manifest is None or not step.whole:
        raise StepError(f"{step.path} is not whole: {step.fault}")
    assert isinstance(step.path, Path)
    return step.path, step.manifest


def _model_files(path: Path, manifest: Manifest) -> Iterator[tuple[str, Path]]:
    """Yield what stands in `model/` beside tensors and their index."""
    tensor_files = {piece.file for record in manifest.tensors["model"].values() for piece in record.pieces}
    for file in manifest.files:
        if file.startswith("model/") and file not in tensor_files and file != names.index_file("model"):
            yield file.removeprefix("model/"), path / file


def _is_of_a_run(state: Mapping[str, Any]) -> bool:
    """Whether a `TrainState` wrote it; a step of weights has no more than its number."""
    return "optimizer" in state


def _left(manifest: Manifest, state: Mapping[str, Any]) -> Iterator[str]:
    if ranks := sum(file.startswith("ranks/") and file.endswith(".json") for file in manifest.files):
        yield f"what belongs to one rank alone, such as random states: of {ranks} rank{'s' * (ranks > 1)}"
    if manifest.inexact:
        yield f"the values as they were saved: {len(manifest.inexact)} tensors were made small, and not exactly"
    if not _is_of_a_run(state) and state.keys() - {"step"}:
        yield f"the state, which is not of a training run: {', '.join(map(repr, list(state)[:5]))}"


class _Tensors:
    """Reads tensors through their pieces, verified; a block that small ones share is read once when they come in order.

    The file that was read last stays open as long as this object is there.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._manifest = manifest
        self._reader = StepReader(path, manifest)
        self._frames = Frames(path, manifest, self._reader)

    def read(self, section: str, name: str) -> Tensor:
        """Return a tensor; raise `CorruptError` when a block of it is not as it was written."""
        record = self._manifest.tensors[section].get(name)
        if record is None:
            raise LoadError(f"step {self._manifest.step} has no {name!r} in {section}")
        tensor = blank(record.spec)
        local, data = describe(name, tensor, 0, 1), TensorBytes(tensor)
        for cut, part in self._parts(section, name, record, local):
            data.put(cut, part)
        return tensor

    def _parts(self, section: str, name: str, record: TensorRecord, local: LocalTensor) -> Iterator[tuple[Strip, Rows]]:
        if record.encoding is not None:
            yield from self._frames.read((section, name), Strip(0, 0, record.spec.num_bytes))
            return
        for piece in record.pieces:
            for strip in read_strips(piece, local, ITEM_BYTES[record.spec.dtype]):
                yield from self._reader.read(piece.file, strip)
