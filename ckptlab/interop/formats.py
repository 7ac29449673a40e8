"""Which formats can be opened and which can be written: the only list of them.

Each format's own file is imported when it is used, so that who asks for the list loads no torch.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ckptlab.errors import StepError, UsageError
from ckptlab.storage import store


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A way in which checkpoints stand on the disk.

    Attributes:
        opens: what is opened, in words.
        marks: a pattern for names that stand in the folder of such a checkpoint, and in no other's.
        opener: the function that makes a `Foreign` of it.
        writes: what is made, in words; None where this format is only read.
        writer: the function that makes it of a `Foreign`.
        sections: what it can hold.
        needs_groups: whether tensors of an optimizer have a place in it only beside the param groups, which the state tells.
        holds_files: whether files that go along with the model, such as `config.json`, have a place in it.
        takes: what the writer is told besides.
        wants: a file that whoever opens the result will look for.
    """

    opens: str
    marks: str
    opener: str
    writes: str | None = None
    writer: str = ""
    sections: tuple[str, ...] = ("model", "optim")
    needs_groups: bool = False
    holds_files: bool = True
    takes: frozenset[str] = frozenset()
    wants: str | None = None


FORMATS: Mapping[str, Format] = {
    "huggingface": Format(
        opens="a folder with model.safetensors, or with its index and numbered files",
        marks=r"model\.safetensors(\.index\.json)?",
        opener="huggingface.open_folder",
        writes="a new folder of safetensors files: the weights, and config.json and tokenizer where they are known",
        writer="huggingface.write_folder",
        sections=("model",),
        takes=frozenset({"max_file_bytes"}),
        wants="config.json",
    ),
    "dcp": Format(
        opens="a checkpoint of torch.distributed.checkpoint",
        marks=r"\.metadata",
        opener="dcp.open_checkpoint",
        writes="a new checkpoint of torch.distributed.checkpoint, with the keys model and optim",
        writer="dcp.write_checkpoint",
        needs_groups=True,
        holds_files=False,
    ),
    "deepspeed": Format(
        opens="what DeepSpeed's save_checkpoint wrote, or one tag of it",
        marks=r"latest(_universal)?|global_step\d+(_universal)?|(bf16_)?(zero_pp_rank|mp_rank)_.*\.pt",
        opener="deepspeed.open_checkpoint",
    ),
    "ckptlab": Format(
        opens="a step, or a run: then its newest whole step",
        marks=r"step-\d{8,18}|manifest\.json",
        opener="step.open_step",
        writes="a step in the run DST, which may be there already",
        writer="step.write_step",
        takes=frozenset({"number"}),
    ),
}
SOURCES = tuple(FORMATS)
TARGETS = tuple(name for name, format_ in FORMATS.items() if format_.writes is not None)


def format_named(name: str, names: tuple[str, ...]) -> Format:
    """Return a format; raise `UsageError` when its name is not among `names`."""
    if name not in names:
        raise UsageError(f"{name!r} is not among the formats {', '.join(names)}")
    return FORMATS[name]


def format_of(path: Path) -> str:
    """Tell the format of a checkpoint by the names in its folder.

    Raises:
        UsageError: it may be none of the formats, or several.
    """
    names = store.list_names(path)
    found = [name for name in SOURCES if any(re.fullmatch(FORMATS[name].marks, file) for file in names)]
    if not found:
        raise UsageError(f"{path} is none of {', '.join(SOURCES)}; in it there is {', '.join(names[:5]) or 'nothing'}")
    if len(found) > 1:
        raise UsageError(f"{path} looks like {' and like '.join(found)}; say which one it is (--from, source_format=)")
    return found[0]


def check_folder(path: Path) -> None:
    """Raise `StepError` where there is no folder at all."""
    if not store.is_directory(path):
        what = "is a file; name the folder that it stands in" if store.exists(path) else "is not there"
        raise StepError(f"{path} {what}")


def function(name: str) -> Callable[..., Any]:
    """Import a function of a format's own file."""
    module, _, function_name = name.partition(".")
    found: Callable[..., Any] = getattr(import_module(f"ckptlab.interop.{module}"), function_name)
    return found
