"""What ranks print: each rank into a file of its own, from where the parent prints it, labelled and in rank order.

A file, not a pipe: nobody has to read for a rank to go on, and what a rank printed before it was killed is there.
"""

import io
import os
import sys
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 100_000  # shown of one rank and run; a notebook that holds more is no longer usable


def file_of(rank: int, folder: Path) -> Path:
    """Return the file for what a rank of the world in `folder` prints."""
    return folder / f"rank-{rank}.txt"


def redirect(path: Path) -> None:
    """Send what this process and its children print to `path`. A rank calls it, once."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        os.dup2(file, stream.fileno())
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    os.close(file)


def read_from(file: BinaryIO, begin: int) -> tuple[str, int]:
    """Read what was printed since `begin`, at most its last `MOST_BYTES`; return it and where it ends."""
    end = file.seek(0, os.SEEK_END)
    left_out = max(0, end - begin - MOST_BYTES)
    file.seek(begin + left_out)
    text = file.read(end - begin - left_out).decode(errors="replace")
    return (f"… {left_out:,} bytes before this are left out\n{text}" if left_out else text), end


def label(rank: int, text: str) -> str:
    r"""Put the rank before each line: `label(1, "a\nb")` is `"[rank 1] a\n[rank 1] b\n"`."""
    return "".join(f"[rank {rank}] {line}\n" for line in text.splitlines())
