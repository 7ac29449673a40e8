"""Headers and manifests that were edited anywhere: read as what they say, or refused; never anything else."""

import copy
import json
import random
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import safetensors
from test_format_header import safetensors_reads
from test_format_manifest import BY_RANK, places, sealed

from ckptlab.errors import FormatError
from ckptlab.format.dtypes import ITEM_BYTES
from ckptlab.format.header import header_bytes, parse_header
from ckptlab.format.manifest import Manifest

HEADER: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
    "b": {"dtype": "F32", "shape": [3, 2], "data_offsets": [8, 32]},
    "c": {"dtype": "U8", "shape": [0, 9], "data_offsets": [32, 32]},
    "d": {"dtype": "BF16", "shape": [1, 4], "data_offsets": [32, 40]},
}
DATA = bytes(range(100, 140))

EMPTY = {"dtype": "U8", "shape": [0], "data_offsets": [32, 32]}
ANYTHING = [None, True, -1, 1.0, 2**32, 2**62, 2**63, 2**64, "", "a", [], {}, [0], [1] * 65, {"F32": None}, EMPTY]
ANYTHING += [{**EMPTY, "x": 1}]
LIKELY: dict[object, list[Any]] = {  # at a place of this name
    "dtype": [*ITEM_BYTES, "F4"],
    "shape": [[], [1], [4], [6], [2, 3], [6, 1], [20], [4, 5], [5, 4], [2, 10], [0, 2**62], [2**32, 2**32, 0]],
    "offset": [[0, 0], [3, 0], [0, 2], [0]],
    "file": [*BY_RANK["files"]],
    "begin": [0, 8, 80, 96, 100, 132],
    "bytes": [0, 140, 144, 192],
    "block_bytes": [48, 64, 72, 128],
    "step": [0, 1, 2**63],
    0: [0, 1, 2, 3, 8, 32],
    1: [0, 1, 2, 3, 4, 8, 32, 40],
}
LETTERS = [*b' \n-01[]{},:"\\\0\xffnaF', b".0", b"e0", b"null", b"\\ud800", b"\\u0061", b'"x": 0, ', b'"shape": [2], ']
LETTERS += [b'"__metadata__": null, ', b"18446744073709551616", b"\xef\xbb\xbf"]


def edited(document: Any, draw: random.Random) -> Any:
    """The document after one to three edits: another value, none, that of another place, or a number near by; or a new name."""
    document = copy.deepcopy(document)
    for _ in range(draw.randint(1, 3)):
        everywhere = places(document)
        place, other = draw.choice(everywhere), draw.choice(everywhere)
        holder, giver = inside(document, place[:-1]), inside(document, other[:-1])
        name = draw.choice([place[-1], place[-1], "x"]) if isinstance(holder, dict) else place[-1]
        likely = draw.choice([ANYTHING, *[LIKELY.get(name, ANYTHING)] * 3])
        with suppress(TypeError, KeyError):  # there is no number to add to, or nothing
            match draw.randrange(6):
                case 0:
                    holder[name] += draw.randint(-9, 9)
                case 1:
                    del holder[name]
                case 2:
                    holder[name] = copy.deepcopy(giver[other[-1]])
                case 3:
                    holder[name], giver[other[-1]] = copy.deepcopy((giver[other[-1]], holder[name]))
                case _:
                    holder[name] = copy.deepcopy(draw.choice(likely))
    return document


def inside(document: Any, place: Any) -> Any:
    for name in place:
        document = document[name]
    return document


def edited_text(text: bytes, draw: random.Random) -> bytes:
    """The text after one or two edits: some letters in the place of some, or those of another place."""
    data = bytearray(text)
    for _ in range(draw.randint(1, 2)):
        begin, other, length = draw.randint(0, len(data)), draw.randint(0, len(data)), draw.choice([0, 0, 1, 1, 2, 40])
        letters = draw.choice(LETTERS)
        copied = data[other : other + draw.choice([1, 2, 40])]
        new = draw.choice([copied, bytes([letters]) if isinstance(letters, int) else letters])
        data[begin : begin + length] = new
    return bytes(data)


# Safetensors takes and we refuse: spaces before the JSON, members that it does not know, a name that stands twice, null as
# metadata, a dtype in an object, items of half a byte, more dims than torch has, sizes that no file has.
STRICTER = (
    r"with JSON that begins|missing members \[\], unknown|stands twice|__metadata__: expected an object, found None"
    r"|dtype: expected a string, found \{|found 'F4'|items, expected at most 64|from 0 to 9223372036854775807, found \d"
)
# We take and it refuses: a shape of no elements whose other sizes overflow, which torch cannot hold either; 0 written as -0.
LAXER = "overflow computing buffer size|floating point `-0.0`"


def test_an_edited_header_is_read_as_safetensors_reads_it_or_refused() -> None:
    draw, text, num_read = random.Random(0), json.dumps(HEADER).encode(), 0
    for number in range(12_000):
        head = edited_text(text, draw) if number % 2 else json.dumps(edited(HEADER, draw)).encode()
        file = len(head).to_bytes(8, "little") + head + DATA[: draw.choice([40, 40, 40, 39])]
        ours, why = attempt(we_read, file)
        theirs, why_not = attempt(safetensors_reads, file)
        assert ours == theirs or re.search(*((LAXER, why_not) if theirs is None else (STRICTER, why))), (head, why, why_not)
        num_read += ours is not None
    assert num_read > 300, "most edits should be refused, not all"


def we_read(file: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    entries = parse_header(file[: header_bytes(file[:8])], len(file))
    return {name: (e.spec.dtype, e.spec.shape, file[e.begin :][: e.spec.num_bytes]) for name, e in entries.items()}


def attempt(read: Callable[[bytes], Any], file: bytes) -> tuple[Any, str]:
    """What reading gives, or None and why."""
    try:
        return read(file), ""
    except (FormatError, safetensors.SafetensorError) as error:
        return None, str(error)


def times_held(manifest: Manifest) -> tuple[list[int], list[int]]:
    """How often each element of each tensor is held, and each byte of each file used."""
    elements, used = [], {file: np.zeros(record.num_bytes, int) for file, record in manifest.files.items()}
    for record in (record for tensors in manifest.tensors.values() for record in tensors.values() if record.spec.num_bytes):
        held = np.zeros(record.spec.shape, int)
        for piece in record.pieces:
            box = tuple(slice(at, at + size) for at, size in zip(piece.box.offset, piece.box.shape, strict=True))
            held[(*box, ...)] += 1
            end = piece.begin + held[(*box, ...)].size * ITEM_BYTES[record.spec.dtype]
            assert end <= len(used[piece.file])
            used[piece.file][piece.begin : end] += 1
        elements += held.ravel().tolist()
    return elements, [times for counts in used.values() for times in counts.tolist()]


def test_an_edited_manifest_with_a_true_sum_is_kept_as_it_is_and_sound_or_refused() -> None:
    draw, num_read = random.Random(0), 0
    for _ in range(3_000):
        document = edited(BY_RANK, draw)
        try:
            manifest = Manifest.parse(sealed(document))
        except FormatError:
            continue
        assert manifest.to_json() == sealed(document), document
        elements, used = times_held(manifest)
        assert set(elements) <= {1}, document
        assert max(used, default=0) <= 1, document
        assert all(len(f.crc32) == len(range(0, f.num_bytes, manifest.block_bytes)) for f in manifest.files.values()), document
        assert set(manifest.aliases.values()) <= manifest.tensors["model"].keys(), document
        num_read += document != BY_RANK
    assert num_read > 100, "most edits should be refused, not all"


def test_an_edit_of_a_manifests_bytes_never_gives_another_manifest() -> None:
    draw, text = random.Random(0), sealed(BY_RANK)
    expected = Manifest.parse(text)
    for _ in range(3_000):
        with suppress(FormatError):
            assert Manifest.parse(edited_text(text, draw)) == expected
