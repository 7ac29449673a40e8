"""Where a question sends a learner to read again: the headings of the labs, by slug."""

import json
import re
from functools import lru_cache
from pathlib import Path

from ckptlab.course.content import labs


def headings(lab: str) -> dict[str, str]:
    """Return the headings below the title of a lab ("02") by slug: "who-writes" for "Who writes?"; empty without that lab."""
    return next((_headings(path, path.stat().st_mtime_ns) for path in labs() if path.stem[:2] == lab), {})


def slug(heading: str) -> str:
    """Return lower case, words joined by "-", without punctuation."""
    return "-".join(re.sub(r"[^a-z0-9 -]", "", heading.lower()).split())


@lru_cache(maxsize=32)
def _headings(path: Path, changed_ns: int) -> dict[str, str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = [match.strip() for match in re.findall(r"^#{2,3} +(.+)$", text, re.MULTILINE)]
    return {slug(heading): heading for heading in found}
