"""Open the course: `make lab` runs this, and Binder's postBuild runs it with `--prepare`.

1. The environment learns what a kernel of the course needs, and JupyterLab not to ask whether it may fetch news.
2. The notebooks are copied to `my-labs/`, without outputs: these would tell what a learner is to predict.
3. Unless only `--prepare` is wanted, this process becomes JupyterLab on the first copy, for this machine alone.

A copy that a person has changed is never overwritten; a newer original is put beside it. No list of copies is kept: each
has in its metadata a digest of what a person could change in it (kinds and sources of its cells) when it was made.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from ckptlab.course.content import LABS, notebooks

COPY_OF = "ckptlab_copy_of"
SETTINGS: dict[str, dict[str, Any]] = {  # by file, below the environment's etc/
    "ipython/ipython_kernel_config": {
        "InteractiveShellApp": {"extensions": ["ckptlab.course.magics"]},
        "Completer": {"use_jedi": False},  # one Tab after `torch.` would load torch into the kernel
    },
    "jupyter/labconfig/default_setting_overrides": {
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
        # cells out of sight are drawn too: else figures come late, what one scrolls to jumps away, and a search misses them
        "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    },
}


def main(arguments: list[str]) -> int:
    """Prepare the course, then become JupyterLab; return an exit code where that is not wanted or cannot be."""
    parser = argparse.ArgumentParser(prog="make lab", description="Open the course in JupyterLab.")
    parser.add_argument("--prepare", action="store_true", help="only prepare settings and copies of the notebooks")
    only_prepare = parser.parse_args(arguments).prepare
    originals, folder = notebooks(), LABS.parent / "my-labs"
    if find_spec("jupyterlab") is None:
        return _fail(f"JupyterLab is not installed for {sys.executable}: start the course with make lab")
    if not originals:
        return _fail(f"no notebooks in {LABS}: start the course with make lab in a copy of the whole repository")
    try:
        prepare_environment(Path(sys.prefix))
        for news in copy_notebooks(originals, folder):
            print(news, flush=True)
        if not only_prepare:
            become_jupyterlab(folder / originals[0].name)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}; put the repository where you may write, and start again there")
    return 0


def prepare_environment(prefix: Path) -> None:
    """Write `SETTINGS` for every kernel and JupyterLab of the environment at `prefix`, beside other settings there."""
    from traitlets.config.manager import BaseJSONConfigManager, recursive_update  # comes with JupyterLab

    for name, settings in SETTINGS.items():
        path = prefix / "etc" / name
        files = BaseJSONConfigManager(config_dir=str(path.parent))
        merged = files.get(path.name)
        recursive_update(merged, settings)
        if merged != files.get(path.name):  # an environment that is prepared may be read-only
            files.set(path.name, merged)


def copy_notebooks(originals: Iterable[Path], folder: Path) -> Iterator[str]:
    """Copy notebooks that are new or newer than their copy; yield what the person should be told."""
    folder.mkdir(exist_ok=True)
    for original in originals:
        notebook = json.loads(original.read_text(encoding="utf-8"))
        digest = _digest(notebook)
        for copy in _names(folder / original.name):
            made_of, edited = _examine(copy)
            if made_of == digest:
                break  # nothing newer
            if not edited:
                _write(copy, _without_outputs(notebook, digest))
                if copy.name != original.name:
                    yield f"There is a newer {original.name}. Yours is changed and stays as it is; the newer one is {copy}"
                break


def become_jupyterlab(notebook: Path) -> None:
    """Replace this process by JupyterLab, which opens a browser if it can, and prints its address in any case."""
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={notebook.parent}"]
    command.append(f"--LabApp.default_url=/lab/tree/{notebook.name}")  # in the printed address too, unlike a file's name
    command.append("--LanguageServerManager.autodetect=False")  # would list all it has not found below the address
    if os.geteuid() == 0:
        command.append("--allow-root")  # in a container; JupyterLab refuses otherwise
    if sys.platform == "linux" and not {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        command.append("--no-browser")  # a browser of the terminal would take the terminal
    print("Opening the course in JupyterLab. Without a browser open the address below. Ctrl+C twice ends it.", flush=True)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # ckptlab in JupyterLab's terminals
    os.execv(sys.executable, command)


def _names(copy: Path) -> Iterator[Path]:
    """Give `02_shards.ipynb`, then `02_shards-new.ipynb`, then `02_shards-new-2.ipynb`, and so on."""
    yield copy
    yield copy.with_stem(f"{copy.stem}-new")
    yield from (copy.with_stem(f"{copy.stem}-new-{number}") for number in count(2))


def _examine(copy: Path) -> tuple[str | None, bool]:
    """Say which original a copy was made of, and whether it was edited; what is no copy of ours counts as edited."""
    if not copy.exists():
        return None, False
    try:
        notebook = json.loads(copy.read_text(encoding="utf-8"))
        made_of = notebook["metadata"][COPY_OF]
        return made_of, made_of != _digest(notebook)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, True


def _digest(notebook: dict[str, Any]) -> str:
    """Sum up what a person writes. Empty cells do not count: running the last cell adds one."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    written = [cell for cell in cells if cell[1].strip()]
    return hashlib.sha256(json.dumps(written).encode()).hexdigest()


def _without_outputs(notebook: dict[str, Any], digest: str) -> dict[str, Any]:
    emptied: dict[str, Any] = {"execution_count": None, "outputs": []}
    cells = [cell | emptied if cell["cell_type"] == "code" else cell for cell in notebook["cells"]]
    return notebook | {"cells": cells, "metadata": notebook["metadata"] | {COPY_OF: digest}}


def _write(path: Path, notebook: dict[str, Any]) -> None:
    """Replace the file at once: half a notebook would look edited for ever."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
