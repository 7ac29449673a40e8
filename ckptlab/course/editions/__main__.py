"""`python -m ckptlab.course.editions html FOLDER` or `... solutions FOLDER`: make html and make solutions."""

import argparse
import json
import sys
from pathlib import Path

from ckptlab.course import content
from ckptlab.course.editions.anew import made_anew
from ckptlab.course.editions.pages import write_pages
from ckptlab.course.editions.solutions import solved, write_solutions
from ckptlab.errors import UsageError


def main(arguments: list[str]) -> None:
    """Write an edition of all labs into a folder, which is made anew.

    Raises:
        UsageError: what is there was not made here.
        OSError: it could not be written.
    """
    parser = argparse.ArgumentParser(prog="python -m ckptlab.course.editions", description="Write an edition of the labs.")
    parser.add_argument("edition", choices=("html", "solutions"))
    parser.add_argument("folder", type=Path)
    wanted = parser.parse_args(arguments)
    notebooks = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in content.notebooks()}
    if wanted.edition == "html":
        with made_anew(wanted.folder) as folder:
            write_pages(notebooks, folder, "for reading")
        print(f"To read: {wanted.folder / 'index.html'}")
    else:
        notebooks = {name: solved(notebook) for name, notebook in notebooks.items()}
        with made_anew(wanted.folder) as folder:
            write_solutions(notebooks, folder)
            write_pages(notebooks, folder / "html", "with solutions")
        print(f"For instructors: the notebooks in {wanted.folder}, and as pages {wanted.folder / 'html' / 'index.html'}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (UsageError, OSError) as error:
        sys.exit(f"error: {error}")
