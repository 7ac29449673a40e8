"""Read tensors that have a codec: frame by frame, verified, through the steps that they are stored against.

What is decoded is proved twice: the blocks of the file by the manifest, and the frame by the sum that stands in it.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import accumulate

from ckptlab.errors import CorruptError, FormatError
from ckptlab.format.codecs import XOR, Bytes, decode
from ckptlab.format.manifest import Manifest
from ckptlab.format.names import step_name
from ckptlab.format.records import Encoding, TensorRecord
from ckptlab.format.strips import Rows, Strip, cut_at_blocks, rows
from ckptlab.steps.reading import WINDOW_BYTES, tensor_windows
from ckptlab.steps.steps import read_step
from ckptlab.steps.verified import StepReader
from ckptlab.storage import Place

Tensor = tuple[str, str]
"""Section and name."""


class Frames:
    """Decodes tensors of one step; keeps one frame. A context manager, unless the `reader` that it is given is one already.

    For each step of a chain a file is open, and a block of it in memory.
    """

    def __init__(self, path: Place, manifest: Manifest, reader: StepReader | None = None) -> None:
        self._path, self.manifest = path, manifest
        self._stack = ExitStack()
        self._reader = reader or self._stack.enter_context(StepReader(path, manifest))
        self._base: Frames | None = None
        self._begins: tuple[Tensor, list[int]] = (("", ""), [])  # of the frames of the last tensor, in its piece
        self._held: tuple[Tensor, int] | None = None  # tensor and frame
        self._frame: Bytes = b""

    def __enter__(self) -> "Frames":
        return self

    def __exit__(self, *_: object) -> None:
        self._held, self._frame = None, b""
        self._stack.close()

    def read(self, tensor: Tensor, strip: Strip) -> Iterator[tuple[Strip, Rows]]:
        """Yield a strip of a tensor's bytes, a frame at a time; `begin` counts from the tensor's first byte.

        Raises:
            CorruptError: a block or a frame is not as it was written, or a step that this one is stored against is not whole.
        """
        record = self.manifest.tensors[tensor[0]][tensor[1]]
        assert record.encoding is not None, "others are read by StepReader"
        for cut in cut_at_blocks(strip, record.encoding.frame_bytes):
            frame, begin = divmod(cut.begin, record.encoding.frame_bytes)
            if self._held != (tensor, frame):
                self._held, self._frame = None, b""
                self._frame = self._decoded(tensor, record, record.encoding, frame)
                self._held = tensor, frame
            yield cut, rows(self._frame, begin, cut.length, cut.num_runs, cut.step)

    def windows(self, tensor: Tensor, window_bytes: int = WINDOW_BYTES) -> Iterator[memoryview]:
        """Read a tensor as `tensor_windows` does, with a codec or without."""
        record = self.manifest.tensors[tensor[0]][tensor[1]]
        if record.encoding is None:
            yield from tensor_windows(self._path, record, window_bytes)
        else:
            for begin in range(0, num_bytes := record.spec.num_bytes, window_bytes):
                yield memoryview(self._joined(tensor, begin, min(begin + window_bytes, num_bytes)))

    def stored(self, tensor: Tensor) -> Iterator[memoryview]:
        """Read the frames of a tensor as they stand in the file, not decoded, a block at a time."""
        for file, begin, end in self.manifest.tensors[tensor[0]][tensor[1]].spans():
            for _, part in self._reader.read(file, Strip(begin, 0, end - begin)):
                yield part.reshape(-1).data

    def _decoded(self, tensor: Tensor, record: TensorRecord, encoding: Encoding, frame: int) -> Bytes:
        begin = frame * encoding.frame_bytes
        end = min(begin + encoding.frame_bytes, record.spec.num_bytes)
        (piece,) = record.pieces
        try:
            base = self._base_frames(tensor, record)._once(tensor, begin, end) if encoding.codec == XOR else None
            if self._begins[0] != tensor:
                self._begins = tensor, list(accumulate(encoding.stored_bytes, initial=piece.begin))
            stored = self._read_file(piece.file, *self._begins[1][frame : frame + 2])
            return decode(encoding.codec, stored, record.spec.dtype, end - begin, encoding.block, base)
        except FormatError as error:
            where = f"{self._path}: {piece.file}: bytes {begin}-{end} of {tensor[0]} {tensor[1]!r}, {encoding.codec}"
            raise CorruptError(f"{where}: {error}") from error

    def _once(self, tensor: Tensor, begin: int, end: int) -> bytes:
        """Return bytes of a tensor, with a codec or without, and keep no frame of it."""
        record = self.manifest.tensors[tensor[0]][tensor[1]]
        if record.encoding is None:
            return self._read_file(record.pieces[0].file, record.pieces[0].begin + begin, record.pieces[0].begin + end)
        data = self._joined(tensor, begin, end)
        self._held, self._frame = None, b""
        return data

    def _joined(self, tensor: Tensor, begin: int, end: int) -> bytes:
        return b"".join(part.tobytes() for _, part in self.read(tensor, Strip(begin, 0, end - begin)))

    def _read_file(self, file: str, begin: int, end: int) -> bytes:
        return b"".join(part.tobytes() for _, part in self._reader.read(file, Strip(begin, 0, end - begin)))

    def _base_frames(self, tensor: Tensor, record: TensorRecord) -> "Frames":
        """Return the step that a tensor is stored against, opened; it has the tensor, in one piece."""
        assert self.manifest.base is not None, "the manifest says it where a tensor is stored so"
        if self._base is None:
            found = read_step(self._path.parent / step_name(self.manifest.base))
            if found.manifest is None or not found.whole:
                raise CorruptError(f"{self._path}: stored against {found.path.name}, which is not whole: {found.fault}")
            self._base = self._stack.enter_context(Frames(found.path, found.manifest))
        if not can_be_base(self._base.manifest, tensor, record):
            raise FormatError(f"step {self.manifest.base}, which it is stored against, has no such tensor in one piece")
        return self._base


def can_be_base(manifest: Manifest, tensor: Tensor, record: TensorRecord) -> bool:
    """Whether a tensor can be stored against that of the same name in another step: of the same kind, and in one piece."""
    there = manifest.tensors[tensor[0]].get(tensor[1])
    return there is not None and there.spec == record.spec and len(there.pieces) == 1
