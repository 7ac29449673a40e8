"""Run every lab from a clean kernel and write its outputs back: `make labs`, for those who write labs.

What differs from run to run or from machine to machine is left out: timings, model ids of widgets, the version of Python.
With names of labs (`python -m tests.labs.execute 02_shards`) only those are run.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from ckptlab.course.content import notebooks
from ckptlab.course.start import prepare_environment

CELL_SECONDS = 60
WIDGET = "application/vnd.jupyter.widget-view+json"
YOURS = "nbval-ignore-output"  # the tag of a cell whose output is another on every machine: the committed lab has none
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def clean_environment(home: Path) -> dict[str, str]:
    """Give the environment of a learner who starts today: no journal, no settings of IPython but the course's own."""
    prepare_environment(Path(sys.prefix))
    return os.environ | {"CKPTLAB_HOME": str(home / "journal"), "IPYTHONDIR": str(home / "ipython")}


def execute(path: Path) -> NotebookNode:
    """Run all cells; an error in a cell that is not tagged `raises-exception` is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name=KERNEL["name"],
            resources={"metadata": {"path": str(path.parent)}},
            store_widget_state=False,
            record_timing=False,
            coalesce_streams=True,
        )
        client.execute(env=clean_environment(Path(home)))
    return notebook


def tidy(notebook: NotebookNode) -> NotebookNode:
    """Leave out what is not the lab's; cell ids, tags and titles stay."""
    notebook.metadata.update(kernelspec=KERNEL, language_info={"name": "python"})
    for cell in notebook.cells:
        for name in ("execution", "trusted", "collapsed", "scrolled"):
            cell.metadata.pop(name, None)
        if YOURS in cell.metadata.get("tags", ()):
            cell.outputs = []
        for output in cell.get("outputs", ()):
            if "data" in output:
                output.data.pop(WIDGET, None)
    return notebook


def main(names: list[str]) -> None:
    paths = [path for path in notebooks() if not names or path.stem in names]
    if not paths:
        sys.exit(f"no such lab; there are {', '.join(path.stem for path in notebooks())}")
    for path in paths:
        begin = time.monotonic()
        nbformat.write(tidy(execute(path)), path)
        print(f"{path.stem}: {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
