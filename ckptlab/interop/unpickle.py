"""Pickles of others, read without running anything of theirs.

A pickle is a program: it names any function and has it called. Here it gets what the caller lists, and the few things that any
saved tensor needs; every other name ends the reading. What it gets either is data or makes plain data, so that calling it has
no effect, and setting its attributes has none on the pickles after it. No number in the pickle makes the reader take more
memory than the pickle has bytes, and no value is so deep, or holds itself so often, that walking it would not end.
"""

import io
import pickle
import pickletools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from reprlib import repr as short
from typing import Any

import torch

from ckptlab.errors import LoadError

Classes = Mapping[tuple[str, str], object]
"""Module and name, as a pickle says them, to what it gets for it."""

MEMO_OPCODES = {"PUT", "BINPUT", "LONG_BINPUT"}
MAX_LEVELS = 100
GIVEN_OF_A_BYTE = 8  # items that functions are given, of a byte of the pickle
MAX_SHARED = 100_000  # of what stands in a value several times, as a default of many param groups may


class Fixed(type):
    """A class whose attributes no pickle can set: it would set them for the pickles after it as well."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise AttributeError(f"{cls.__name__}.{name} cannot be set")


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Stands in for an enumeration, whose members are their values here.

    A pickle names one by its value or, of the first releases of Python 3.11, with `getattr` by its name.
    """

    members: Mapping[str, int]

    def __call__(self, value: int) -> int:
        """Return the member of a value."""
        return value


def loads(data: bytes, classes: Classes, where: str, persistent: Callable[[Any], object] | None = None) -> object:
    """Read one pickle.

    Args:
        data: the pickle, whole.
        classes: what it may name besides the parts of a tensor.
        where: begins every error.
        persistent: called with a persistent id, as pickles of tensors have for the memory behind them.

    Raises:
        LoadError: whatever is wrong with it, and when it names anything else.
    """
    _check_numbers(data, where)
    unpickler = _Unpickler(io.BytesIO(data), classes, where)
    if persistent is not None:
        unpickler.persistent_load = persistent  # type: ignore[method-assign]  # as pickle's documentation has it
    try:
        value: object = unpickler.load()
    except LoadError:
        raise
    except Exception as error:  # a broken pickle raises what it likes: TypeError, KeyError, AttributeError, EOFError
        raise LoadError(f"{where}: not a pickle of this kind ({type(error).__name__}: {error!s:.200})") from None
    _check_size(value, len(data), where)
    return value


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, classes: Classes, where: str) -> None:
        super().__init__(file)
        self._classes, self._where = classes, where
        self._left = MAX_SHARED + GIVEN_OF_A_BYTE * file.getbuffer().nbytes

    def find_class(self, module: str, name: str) -> object:
        found = self._classes.get((module, name), _of_a_tensor(module, name))
        if found is None:
            raise LoadError(
                f"{self._where}: the pickle asks for {module}.{name}, which no checkpoint of this kind needs; it was not run. "
                f"The file may be hostile: take it from somebody you trust, or save it anew from plain values"
            )
        if isinstance(found, Fixed) or not callable(found):
            return found
        return partial(self._call, found)  # anew, for it may be changed

    def _call(self, found: Callable[..., object], *args: object) -> object:
        self._left -= sum(len(arg) for arg in args if isinstance(arg, (str, bytes, list, tuple, dict)))
        if self._left < 0:
            raise LoadError(f"{self._where}: the pickle has one long value copied over and over; it may be hostile")
        return found(*args)


def _check_numbers(data: bytes, where: str) -> None:
    """Refuse a memo of more places than the pickle has bytes, and texts longer than it: both would be allocated at once."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bytes that a broken text holds
            for opcode, argument, _ in pickletools.genops(data):
                if opcode.name in MEMO_OPCODES and argument is not None and argument > len(data):
                    raise ValueError(f"{opcode.name} {argument}")
    except (ValueError, MemoryError, OverflowError) as error:
        raise LoadError(f"{where}: the pickle is broken or hostile ({error!s:.200})") from None


def _check_size(value: object, num_bytes: int, where: str) -> None:
    """Refuse a value that is far larger, walked, than its pickle, as lists that share lists are, or deeper than any is."""
    left, level = num_bytes + MAX_SHARED, [value]
    for _ in range(MAX_LEVELS):
        below: list[object] = []
        for items in (
            item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list, tuple))
        ):
            if (left := left - len(items)) < 0:
                raise LoadError(
                    f"{where}: lists hold others over and over, {MAX_SHARED} items more than there are bytes; it may be hostile"
                )
            below.extend(items)
        level = below
    if level:
        raise LoadError(f"{where}: nested deeper than {MAX_LEVELS} levels, or inside itself; it may be hostile")


def _of_a_tensor(module: str, name: str) -> object:
    if module == "torch" and isinstance(found := vars(torch).get(name), torch.dtype):  # getattr would import what is asked for
        return found
    parts: dict[tuple[str, str], object] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch", "Size"): torch.Size,
        ("torch._utils", "_rebuild_parameter"): _the_tensor,
        ("builtins", "getattr"): _member,
        ("__builtin__", "getattr"): _member,
        ("_codecs", "encode"): _bytes,
        ("__builtin__", "bytes"): _no_bytes,
    }
    return parts.get((module, name))


def _member(kind: object, name: str) -> int:
    """Stand in for `getattr`, of an enumeration alone, which the pickle got as `find_class` gives what can be called."""
    found = kind.args[0] if isinstance(kind, partial) and kind.args else None
    if not isinstance(found, Enumeration):
        raise ValueError("getattr of what is no enumeration")
    return found.members[name]


def _the_tensor(data: object, *_: object) -> object:
    return data


def _bytes(text: str, encoding: str) -> bytes:
    """Make bytes as pickles of protocol 2 have them; a codec by any name would be code of somebody's."""
    if encoding != "latin1":
        raise ValueError(f"bytes as {short(encoding)}, expected latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""
