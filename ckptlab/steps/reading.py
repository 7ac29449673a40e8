"""What is in a step, read without torch: a tensor's bytes through its pieces, and the headers of rank files."""

import heapq
from collections.abc import Iterator

from ckptlab.errors import FormatError
from ckptlab.format.boxes import byte_runs, whole
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.header import header_bytes, parse_header
from ckptlab.format.manifest import Manifest
from ckptlab.format.records import Piece, TensorRecord
from ckptlab.storage import Place, store

WINDOW_BYTES = 1 << 20  # a multiple of every item's size


def tensor_windows(step_path: Place, record: TensorRecord, window_bytes: int = WINDOW_BYTES) -> Iterator[memoryview]:
    """Read the bytes of a tensor without a codec in row-major order, whatever its pieces are, a window at a time.

    Every window but the last has `window_bytes`; all share one buffer, so a window is gone when the next one comes.
    """
    buffer = memoryview(bytearray(min(window_bytes, record.spec.num_bytes)))
    filled = 0
    for file, begin, length in _runs_in_order(record):
        with store.open_to_read(step_path / file) as fd:
            while length:
                part = min(length, len(buffer) - filled)
                store.read_into(fd, begin, buffer[filled : filled + part])
                filled, begin, length = filled + part, begin + part, length - part
                if filled == len(buffer):
                    yield buffer
                    filled = 0
    if filled:
        yield buffer[:filled]


def rank_tensors(step_path: Place, file: str) -> dict[str, TensorRecord]:
    """Read which tensors a safetensors file of one rank holds; the manifest does not list them."""
    try:
        entries = parse_header(*read_head(step_path / file))
    except FormatError as error:
        raise FormatError(f"{file}: {error}") from error
    return {
        name: TensorRecord(entry.spec, (Piece(file, entry.begin, whole(entry.spec.shape)),)) for name, entry in entries.items()
    }


def tensors_by_file(manifest: Manifest) -> dict[str, list[tuple[int, int, str]]]:
    """Map each file to its pieces as (begin, end, name of the tensor)."""
    pieces: dict[str, list[tuple[int, int, str]]] = {}
    for records in manifest.tensors.values():
        for name, record in records.items():
            for file, begin, end in record.spans():
                pieces.setdefault(file, []).append((begin, end, name))
    return pieces


def read_head(path: Place) -> tuple[bytes, int]:
    """Read the head of a safetensors file, for `parse_header`: its length, JSON and padding; and tell the file's bytes."""
    num_bytes = store.size_of(path) or 0
    with store.open_to_read(path) as fd:
        first = bytearray(8)
        store.read_into(fd, 0, memoryview(first))
        head = bytearray(min(header_bytes(bytes(first)), num_bytes))
        store.read_into(fd, 0, memoryview(head))
    return bytes(head), num_bytes


def _runs_in_order(record: TensorRecord) -> Iterator[tuple[str, int, int]]:
    """Give the tensor's runs in row-major order as (file, begin in the file, bytes).

    Columns 0-1 and 2-3 of a (2, 4) U8 tensor in files a and b: (a, 0, 2), (b, 0, 2), (a, 2, 2), (b, 2, 2).
    """
    runs = heapq.merge(*(_runs_of_piece(record, piece) for piece in record.pieces))
    return ((file, begin, length) for _, file, begin, length in runs)


def _runs_of_piece(record: TensorRecord, piece: Piece) -> Iterator[tuple[int, str, int, int]]:
    begin = piece.begin
    for begin_in_tensor, length in byte_runs(record.spec.shape, piece.box, ITEM_BYTES[record.spec.dtype]):
        yield begin_in_tensor, piece.file, begin, length
        begin += length
