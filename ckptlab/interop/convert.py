"""From one system to another: whatever opens gives a `Foreign`, whatever writes takes one, so that all directions compose."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckptlab.errors import LoadError, UsageError
from ckptlab.format.names import parse_step
from ckptlab.format.strict_json import as_natural
from ckptlab.interop.formats import SOURCES, TARGETS, Format, check_folder, format_named, format_of, function
from ckptlab.storage import on_disk

if TYPE_CHECKING:  # it needs torch
    from torch import Tensor

    from ckptlab.interop.foreign import Foreign

SAID = {"number": "step (--step)", "max_file_bytes": "max_file_bytes (--max-file-size)"}  # how a caller says it

OnProgress = Callable[[int, int], object]
"""Told of the bytes of tensors that were written so far, and of all that will be; must not raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What a conversion made.

    Attributes:
        source: what was opened.
        system: who wrote that, in words.
        path: what was made: a folder, or a step of the run that was named.
        num_tensors: how many tensors are in it.
        num_bytes: of these tensors.
        left: what the source has and the result has not, in words.
    """

    source: Path
    system: str
    path: Path
    num_tensors: int
    num_bytes: int
    left: tuple[str, ...]


def convert(
    source: Path,
    target: Path,
    *,
    source_format: str | None = None,
    target_format: str,
    step: int | None = None,
    max_file_bytes: int | None = None,
    on_progress: OnProgress | None = None,
) -> Converted:
    """Write the checkpoint `source` as `target`: all of it or nothing. One process calls it; a tensor at a time is in memory.

    Args:
        source: a checkpoint; of ckptlab's own a step, or a run, of which the newest whole step is taken.
        target: what to make; for "ckptlab" the run that gets a step.
        source_format: one of `formats.SOURCES`; None tells it by the names of the files.
        target_format: one of `formats.TARGETS`.
        step: the number that the step gets; None: how many steps the source was trained, 0 where that is not known.
        max_file_bytes: of tensors in a file, for "huggingface"; None for 5 GB.
        on_progress: told of bytes written so far, and of all.

    Raises:
        UsageError: a format that is not known or cannot be told, or an argument that the target does not take.
        StepError: the source is not there, the step is there already, or the run is in use.
        LoadError: the source is damaged, not whole or not what it says.
        OSError: a file cannot be read or written, or something is at the target.
    """
    source, target, to = on_disk(source), on_disk(target), format_named(target_format, TARGETS)
    arguments = {"number": step, "max_file_bytes": max_file_bytes}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    if refused := arguments.keys() - to.takes:
        raise UsageError(f"{target_format} takes no {' and no '.join(SAID[name] for name in sorted(refused))}; leave it out")
    check_folder(source)
    opener = format_named(source_format or format_of(source), SOURCES).opener
    before = _files(source)
    foreign: Foreign = function(opener)(source)
    if target.absolute().is_relative_to(foreign.path.absolute()):
        raise UsageError(f"{target} is the source, or in it; name another place")
    foreign = _unchanged(foreign, before)
    kept, left = _kept(foreign, to)
    if "number" in to.takes:
        arguments.setdefault("number", _number(foreign))
    num_bytes = sum(_sizes(kept))
    path: Path | None = function(to.writer)(kept, target, on_bytes=_counted(on_progress, num_bytes), **arguments)
    return Converted(
        source=foreign.path,
        system=foreign.system,
        path=path or target,
        num_tensors=len(list(_sizes(kept))),
        num_bytes=num_bytes,
        left=(*foreign.left, *left),
    )


def _files(path: Path) -> dict[Path, tuple[int, int, int]]:
    """Return what tells whether files in a folder were written anew: inode, size and time of change."""
    found = {}
    for file in path.absolute().rglob("*"):
        with suppress(OSError):  # one that goes just now, such as another step of a run, is not what is read
            stat = file.stat()
            if not file.is_dir():
                found[file] = stat.st_ino, stat.st_size, stat.st_mtime_ns
    return found


def _unchanged(foreign: "Foreign", before: Mapping[Path, tuple[int, int, int]]) -> "Foreign":
    """Return the checkpoint with a `read` that, from the last tensor on, also proves that all are of one moment.

    A system that overwrites its files may do so while they are read: then some values are old and some new, each of them whole.
    """
    rest = {(section, name) for section, named in foreign.tensors.items() for name in named}

    def read(section: str, name: str) -> "Tensor":
        tensor = foreign.read(section, name)
        rest.discard((section, name))
        if not rest:
            now = _files(foreign.path)
            if changed := sorted(file for file in now.keys() & before.keys() if now[file] != before[file]):
                raise LoadError(f"{changed[0]} changed while it was read; convert again when nobody writes there")
        return tensor

    return replace(foreign, read=read)


def _number(foreign: "Foreign") -> int:
    """Return how many steps were trained, as far as the source tells."""
    if foreign.state is None:
        return parse_step(foreign.path.name) or 0
    return as_natural(foreign.state.get("step"), f"{foreign.path}: its state: step")


def _kept(foreign: "Foreign", to: Format) -> tuple["Foreign", list[str]]:
    """Return the checkpoint without what the target cannot hold; and what that is, and what it will lack, in words."""
    holds_optim = "optim" in to.sections and not (to.needs_groups and foreign.state is None)
    sections = to.sections if holds_optim else to.sections[:1]
    kept, left = replace(foreign, tensors={section: foreign.tensors.get(section, {}) for section in sections}), []
    if not holds_optim:
        kept = replace(kept, state=None)
        if num_tensors := len(foreign.tensors.get("optim", {})):
            left.append(f"the optimizer's state: {num_tensors} tensors, {sum(_sizes(foreign)) - sum(_sizes(kept))} bytes")
        if foreign.state is not None:
            left.append("the rest of the training's state: counters, schedules, param groups")
    if not to.holds_files and foreign.state is not None and foreign.state["position"]:
        left.append("the place in the data: epoch and position")
    if not to.holds_files and foreign.model_files:
        left.append(f"files beside the weights: {', '.join(sorted(foreign.model_files))}")
    if to.wants and to.wants not in foreign.model_files:
        left.append(f"{to.wants}, which the source does not have; put the model's own beside the weights")
    return kept, left


def _sizes(foreign: "Foreign") -> Iterator[int]:
    return (spec.num_bytes for named in foreign.tensors.values() for spec in named.values())


def _counted(on_progress: OnProgress | None, total: int) -> Callable[[int], None]:
    done = 0

    def on_bytes(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        if on_progress is not None:
            on_progress(done, total)

    return on_bytes
