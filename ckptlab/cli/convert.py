"""`ckptlab convert SRC DST`."""

from pathlib import Path

import click
from rich.filesize import decimal

from ckptlab.cli.bar import bytes_bar
from ckptlab.cli.door import Door, json_option, say, say_json
from ckptlab.cli.size import Size
from ckptlab.interop import Converted
from ckptlab.interop import convert as do_convert
from ckptlab.interop.formats import FORMATS, SOURCES, TARGETS


def _directions() -> str:
    """Say what can be opened and what can be made of it."""
    opened = [f"  {name:12} {FORMATS[name].opens}" for name in SOURCES]
    made = [f"  {name:12} {FORMATS[name].writes}" for name in TARGETS]
    return "\n\n".join("\b\n" + "\n".join(lines) for lines in (["From any of these:", *opened], ["To any of these:", *made]))


@click.command(cls=Door, epilog=_directions())
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@click.argument("target", metavar="DST", type=click.Path(path_type=Path))
@click.option("--from", "source_format", type=click.Choice(SOURCES), help="What SRC is; else its files tell.")
@click.option("--to", "target_format", type=click.Choice(TARGETS), required=True, help="What to make.")
@click.option(
    "--step",
    type=click.IntRange(min=0),
    help="The step's number; else `step` in SRC, or its optimizer's count; weights alone get 0.",
)
@click.option("--max-file-size", "max_file_bytes", type=Size(), help="Of a file's tensors, for huggingface; else 5GB.")
@json_option
def convert(
    source: Path,
    target: Path,
    source_format: str | None,
    target_format: str,
    step: int | None,
    max_file_bytes: int | None,
    as_json: bool,
) -> int:
    """Write the checkpoint SRC, of one system, as DST, of another: all of it or nothing; SRC stays as it is."""
    with bytes_bar() as bar:
        task = bar.add_task("", total=None)
        made = do_convert(
            source,
            target,
            source_format=source_format,
            target_format=target_format,
            step=step,
            max_file_bytes=max_file_bytes,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        say_json(_document(made))
        return 0
    say(f"{made.path}: {made.num_tensors} tensors, {decimal(made.num_bytes)}, from {made.system}")
    for what in made.left:
        say(f"not in it: {what}")
    return 0


def _document(made: Converted) -> dict[str, object]:
    return {
        "source": str(made.source),
        "system": made.system,
        "path": str(made.path),
        "tensors": made.num_tensors,
        "bytes": made.num_bytes,
        "left": list(made.left),
    }
