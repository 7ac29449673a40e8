"""What differs between two states that exact JSON holds, by dotted path."""

from collections.abc import Iterator

from ckptlab.format.exact import ExactTensor

SHOWN_CHARACTERS = 60


def compare_members(path: str, first: object, second: object) -> Iterator[tuple[str, str]]:
    """Find what is not equal and of the same type, as (path, what); 1 differs from 1.0 and from true.

    {"lr": (0.1, 0.2)} and {"lr": (0.1, 0.3)}: ("lr[1]", "0.2 and 0.3").
    """
    if isinstance(first, dict) and isinstance(second, dict):
        mine, other = _by_path(path, first), _by_path(path, second)
        for member in mine | other:
            if member in mine and member in other:
                yield from compare_members(member, mine[member], other[member])
            else:
                yield member, f"only in the {'first' if member in mine else 'second'}"
    elif isinstance(first, list | tuple) and isinstance(second, list | tuple) and _kind(first) == _kind(second):
        for number, pair in enumerate(zip(first, second, strict=True)):
            yield from compare_members(f"{path}[{number}]", *pair)
    elif repr(first) != repr(second):
        yield path, f"{_show(first)} and {_show(second)}"


def _by_path(path: str, members: dict[object, object]) -> dict[str, object]:
    """Key by path, because 1 and True are one key of a dict and two in a state."""
    dot = "." if path else ""
    return {f"{path}{dot}{key}" if isinstance(key, str) else f"{path}[{key!r}]": value for key, value in members.items()}


def _kind(value: list[object] | tuple[object, ...]) -> tuple[type, int]:
    return type(value), len(value)


def _show(value: object) -> str:
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, ExactTensor):
        return f"{value.dtype} {list(value.shape)} {value.data.hex()[:SHOWN_CHARACTERS]}"
    return repr(value) if len(repr(value)) <= SHOWN_CHARACTERS else f"{repr(value)[:SHOWN_CHARACTERS]}…"
