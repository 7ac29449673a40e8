"""Codecs: how the bytes of a tensor are made smaller, a frame at a time. Pure functions of bytes; no torch.

A frame is so many bytes of a tensor in row-major order, encoded alone, so that who wants a part decodes no more. Stored it is
4 bytes, the CRC-32 of what it decodes to (little-endian), and then

    planes+zstd        a plane holds the first byte of every item, the next one the second, and so on: bytes with sign and
                       exponent are alike from item to item, those of the mantissa are not. The stored bytes of each plane
                       (4 bytes, little-endian), then each in a zstd frame; one that would not get smaller, as it is
    xor+planes+zstd    the same of the bytes XOR those of another step: what has not changed is zeros
    int8               for floating dtypes, inexact: a float32 scale for each block of items, then an int8 an item

The sum is of the end result: bytes that were XORed with a wrong step, or that another zstd decodes otherwise, are no values.
"""

from types import ModuleType
from typing import Any

import numpy as np
from isal.isal_zlib import crc32

from ckptlab.errors import FormatError, UsageError
from ckptlab.format.dtypes import ITEM_BYTES, numpy_dtype

PLANES, XOR, INT8 = "planes+zstd", "xor+planes+zstd", "int8"
CODECS = (PLANES, XOR, INT8)
FRAME_BYTES = 4 << 20  # a multiple of every item's size, and of every block
BLOCK_ITEMS = 128
LEVEL = 1  # mantissas do not become smaller at a higher one, only slower
SUM_BYTES, SIZE_BYTES, SCALE_BYTES = 4, 4, 4
MOST = 127  # of an int8, in both directions
FLOATING = ("F16", "BF16", "F32", "F64")  # those that become smaller as int8

Bytes = bytes | bytearray | memoryview


def most_stored(num_bytes: int) -> int:
    """Return the bytes that a frame of `num_bytes` can take when it does not get smaller."""
    return num_bytes + num_bytes // 128 + 1024


def encode(codec: str, raw: Bytes, dtype: str, base: Bytes | None = None) -> bytes | None:
    """Encode a frame of whole items; None where the codec cannot hold these values: int8 has no infinity and no NaN.

    Args:
        codec: one of `CODECS`; for `INT8` a dtype of `FLOATING`.
        raw: at most `FRAME_BYTES`.
        dtype: by safetensors' name.
        base: for `XOR`, as many bytes of the same tensor of another step.
    """
    if codec == INT8:
        body = _quantise(raw, dtype)
        return None if body is None else _sum(_dequantise(body, dtype, len(raw), BLOCK_ITEMS)) + body
    mixed = raw if base is None else _xor(raw, base)
    planes = np.ascontiguousarray(np.frombuffer(mixed, np.uint8).reshape(-1, ITEM_BYTES[dtype]).T)
    bodies = [_compressed(plane.data) for plane in planes]
    return b"".join([_sum(raw), *(len(body).to_bytes(SIZE_BYTES, "little") for body in bodies), *bodies])


def decode(codec: str, stored: Bytes, dtype: str, num_bytes: int, block: int | None = None, base: Bytes | None = None) -> Bytes:
    """Return the `num_bytes` of a frame; whatever was stored, no more than that is allocated.

    Raises:
        FormatError: it is no such frame, or decodes to other bytes than were encoded.
    """
    body = memoryview(stored)[SUM_BYTES:]
    if codec == INT8:
        raw: Bytes = _dequantise(body, dtype, num_bytes, block or BLOCK_ITEMS)
    else:
        raw = _joined(body, ITEM_BYTES[dtype], num_bytes)
        raw = raw if codec == PLANES else _xor(raw, base if base is not None else b"")
    if _sum(raw) != bytes(stored[:SUM_BYTES]):
        raise FormatError(
            f"decodes to bytes with crc32 {_sum(raw)[::-1].hex()}, {bytes(stored[:SUM_BYTES])[::-1].hex()} was encoded"
        )
    return raw


def scales(raw: Bytes, dtype: str, block: int = BLOCK_ITEMS) -> Any:
    """Return the scale of each block of a frame, float32: the largest magnitude is 127 of it."""
    return _scales(_in_blocks(_values(raw, dtype), block))


def _sum(raw: Bytes) -> bytes:
    return crc32(raw).to_bytes(SUM_BYTES, "little")


def _xor(raw: Bytes, base: Bytes) -> Bytes:
    one, other = np.frombuffer(raw, np.uint8), np.frombuffer(base, np.uint8)
    if len(one) != len(other):
        raise FormatError(f"a frame of {len(one)} bytes is stored against one of {len(other)}")
    return (one ^ other).data


def _compressed(plane: memoryview) -> Bytes:
    body: bytes = _zstd().ZstdCompressor(level=LEVEL, write_content_size=True).compress(plane)
    return body if len(body) < len(plane) else plane


def _joined(body: memoryview, num_planes: int, num_bytes: int) -> Bytes:
    """Return the items of which the planes are stored."""
    items, begin = np.empty((num_bytes // num_planes, num_planes), np.uint8), num_planes * SIZE_BYTES
    for number in range(num_planes):
        end = begin + int.from_bytes(body[number * SIZE_BYTES : (number + 1) * SIZE_BYTES], "little")
        plane, begin = body[begin:end], end
        items[:, number] = np.frombuffer(plane if len(plane) == len(items) else _decompressed(plane, len(items)), np.uint8)
    if begin != len(body):
        raise FormatError(f"{num_planes} planes end at byte {begin} of {len(body)}")
    return items.reshape(-1).data


def _decompressed(body: memoryview, num_bytes: int) -> bytes:
    """Let a frame of zstd say first how large it will be: what it says is what would be allocated."""
    zstd = _zstd()
    try:
        told = zstd.get_frame_parameters(body).content_size
        if told != num_bytes:
            raise FormatError(f"a zstd frame of {told} bytes, expected {num_bytes}")
        data: bytes = zstd.ZstdDecompressor().decompress(body, max_output_size=num_bytes, allow_extra_data=False)
    except zstd.ZstdError as error:
        raise FormatError(f"not a whole zstd frame: {error}") from None
    if len(data) != num_bytes:
        raise FormatError(f"a zstd frame of {len(data)} bytes, expected {num_bytes}")
    return data


def _values(raw: Bytes, dtype: str) -> Any:
    """Return the items in the float in which they are scaled."""
    values = np.frombuffer(raw, numpy_dtype(dtype))
    return values.astype(np.float64 if dtype == "F64" else np.float32)


def _in_blocks(values: Any, block: int) -> Any:
    return np.pad(values, (0, -len(values) % block)).reshape(-1, block)


def _scales(blocks: Any) -> Any:
    most = np.abs(blocks).max(axis=1)
    with np.errstate(over="ignore", under="ignore"):
        found = (most / MOST).astype(np.float32)
    return np.where((found == 0) & (most > 0), np.float32(np.finfo(np.float32).smallest_subnormal), found)


def _quantise(raw: Bytes, dtype: str) -> bytes | None:
    blocks = _in_blocks(_values(raw, dtype), BLOCK_ITEMS)
    scale = _scales(blocks)
    if not np.isfinite(scale).all():
        return None
    codes = np.rint(blocks / np.where(scale == 0, 1, scale)[:, None])
    # What an optimizer divides by must not become zero: in a block without negative values nothing is rounded to it.
    never_zero = (blocks > 0) & (blocks.min(axis=1) >= 0)[:, None]
    codes = np.where(never_zero, np.maximum(codes, 1), codes).clip(-MOST, MOST).astype(np.int8)
    body = scale.astype("<f4").tobytes() + codes.reshape(-1)[: len(raw) // ITEM_BYTES[dtype]].tobytes()
    decoded = np.frombuffer(_dequantise(body, dtype, len(raw), BLOCK_ITEMS), numpy_dtype(dtype))
    return body if np.isfinite(decoded).all() else None


def _dequantise(body: Bytes, dtype: str, num_bytes: int, block: int) -> bytes:
    num_items = num_bytes // ITEM_BYTES[dtype]
    num_scales = -(-num_items // block)
    if len(body) != (expected := num_scales * SCALE_BYTES + num_items):
        raise FormatError(f"an int8 frame of {len(body)} bytes, expected {expected}")
    scale = np.frombuffer(body, "<f4", num_scales)
    codes = np.frombuffer(body, np.int8, num_items, num_scales * SCALE_BYTES)
    wide = np.float64 if dtype == "F64" else np.float32
    with np.errstate(all="ignore"):
        values = _in_blocks(codes.astype(wide), block) * scale.astype(wide)[:, None]
        return bytes(values.reshape(-1)[:num_items].astype(numpy_dtype(dtype)).tobytes())


def _zstd() -> ModuleType:
    try:
        import zstandard  # here, because only who makes or reads small steps needs it
    except ImportError as error:
        raise UsageError("this needs zstandard, which is not installed: pip install 'ckptlab[stores]'") from error
    return zstandard
