"""Parse a header

`file` holds all bytes of a safetensors file. Return where each tensor lies: its name to `(begin, end)`, the number of its
first byte and of the byte behind its last, both counted from the start of the file.
"""

import json
from collections.abc import Callable, Iterator

import torch
from safetensors.torch import save

from ckptlab.course.exercise import Case

MINUTES = 5
WORLD_SIZES = (1,)
IN_KERNEL = True
HINTS = (
    "The first 8 bytes are the length of the JSON, lowest byte first: `int.from_bytes(file[:8], 'little')`.",
    "`data_offsets` count from the first byte of data. How many bytes stand before that one?",
    "`__metadata__` stands in the JSON beside the tensors and is none: leave it out.",
)


def where_tensors_lie(file: bytes) -> dict[str, tuple[int, int]]:
    """Return name to `(begin, end)`, counted from the start of the file."""
    raise NotImplementedError


def solution(file: bytes) -> dict[str, tuple[int, int]]:
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    header.pop("__metadata__", None)
    return {name: (8 + length + item["data_offsets"][0], 8 + length + item["data_offsets"][1]) for name, item in header.items()}


def wrong_from_the_data(file: bytes) -> dict[str, tuple[int, int]]:
    """These are the numbers of the header, which count from the first byte of data; the length and the JSON stand before it."""
    header = json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")])
    return {name: tuple(item["data_offsets"]) for name, item in header.items() if name != "__metadata__"}


def wrong_without_the_8(file: bytes) -> dict[str, tuple[int, int]]:
    """Eight bytes too early: the length counts the JSON alone, without the 8 bytes in which it stands itself."""
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    header.pop("__metadata__", None)
    return {name: (length + item["data_offsets"][0], length + item["data_offsets"][1]) for name, item in header.items()}


def wrong_big_endian(file: bytes) -> dict[str, tuple[int, int]]:
    """The lowest byte comes first: without `"little"`, `int.from_bytes` takes the first byte as the highest."""
    length = int.from_bytes(file[:8], "big")
    header = json.loads(file[8 : 8 + length])
    return {name: (8 + length + item["data_offsets"][0], 8 + length + item["data_offsets"][1]) for name, item in header.items()}


def wrong_metadata_as_a_tensor(file: bytes) -> dict[str, tuple[int, int]]:
    """`__metadata__` is no tensor: it has no dtype, no shape and no `data_offsets`. Leave it out."""
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    return {name: (8 + length + item["data_offsets"][0], 8 + length + item["data_offsets"][1]) for name, item in header.items()}


def check(answer: Callable[[bytes], dict[str, tuple[int, int]]], rank: int, world_size: int) -> Iterator[Case]:
    drawn = torch.Generator().manual_seed(31)
    for names, metadata in ((["weight"], None), (["ụzọ.weight", "b"], None), (["b", "a", "c.d"], {"format": "pt"})):
        tensors = {name: torch.randn(int(torch.randint(3, 9, (), generator=drawn)), generator=drawn) for name in names}
        file = save(tensors, metadata)
        expected = {}
        for name, tensor in tensors.items():
            data = tensor.numpy().tobytes()
            expected[name] = (file.find(data), file.find(data) + len(data))
        found = answer(file)
        if isinstance(found, dict):
            found = {name: tuple(place) if isinstance(place, list) else place for name, place in sorted(found.items())}
        yield Case(found, dict(sorted(expected.items())), where=f"tensors {names}, metadata {metadata}")
