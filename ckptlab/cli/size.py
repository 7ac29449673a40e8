"""Sizes on the command line."""

import re
from typing import Any

import click

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


class Size(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on
    """Bytes as people write them."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read "256MB", "1.5 GiB" or a plain number of bytes."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", str(value).strip().lower())
        if found is None:
            self.fail(f"{value!r} is no size; write 256MB, 1.5GB or 512MiB", param, ctx)
        return int(float(found[1]) * UNITS[found[2] or ""])
