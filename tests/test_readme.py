"""The README's map is the tree."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_map_names_every_file_of_the_package_and_no_other() -> None:
    text = (ROOT / "README.md").read_text().partition("## The map\n\n```\n")[2].partition("```")[0]
    mapped, folder = set(), ""
    for line in text.splitlines():
        indent, entry = re.fullmatch(r"( *)(.*)", line).groups()
        names = re.findall(r"[\w./]+(?:\.py|/)", entry.partition("  ")[0])
        if len(indent) == 2 and names and names[0].endswith("/"):
            folder = names[0]
        elif len(indent) in (2, 4):
            mapped |= {f"{folder if len(indent) == 4 else ''}{name}" for name in names}
    tree = {path.relative_to(ROOT / "ckptlab").as_posix() for path in (ROOT / "ckptlab").rglob("*.py")}
    assert mapped == {name for name in tree if not name.endswith("__init__.py")}
