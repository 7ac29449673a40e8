"""Pickles of others, read without running anything of theirs.

A pickle is a program: it names any function and has it called. Here it gets what the caller lists, and the few things that any
saved tensor needs; every other name ends the reading. What it gets either is data or makes plain data, so that calling it has
no effect; and no number in the pickle makes the reader take more memory than the pickle has bytes.
"""

import io
import pickle
import pickletools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from ckptlab.errors import LoadError

Classes = Mapping[tuple[str, str], object]
"""Module and name, as a pickle says them, to what it gets for it."""

MEMO_OPCODES = {"PUT", "BINPUT", "LONG_BINPUT"}


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
    return value


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, classes: Classes, where: str) -> None:
        super().__init__(file)
        self._classes, self._where = classes, where

    def find_class(self, module: str, name: str) -> object:
        found = self._classes.get((module, name), _of_a_tensor(module, name))
        if found is None:
            raise LoadError(
                f"{self._where}: the pickle asks for {module}.{name}, which no checkpoint of this kind needs; it was not run. "
                f"The file may be hostile: take it from somebody you trust, or save it anew from plain values"
            )
        return found


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


def _of_a_tensor(module: str, name: str) -> object:
    if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
        return getattr(torch, name)
    parts: dict[tuple[str, str], object] = {  # functions anew, for a pickle may set attributes of what it was given
        ("collections", "OrderedDict"): OrderedDict,
        ("torch", "Size"): torch.Size,
        ("torch._utils", "_rebuild_parameter"): partial(_the_tensor),
        ("_codecs", "encode"): partial(_bytes),
        ("__builtin__", "bytes"): partial(_no_bytes),
    }
    return parts.get((module, name))


def _the_tensor(data: object, *_: object) -> object:
    return data


def _bytes(text: str, encoding: str) -> bytes:
    """Make bytes as pickles of protocol 2 have them; a codec by any name would be code of somebody's."""
    if encoding != "latin1":
        raise LoadError(f"bytes as {encoding!r:.99}, expected latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""
