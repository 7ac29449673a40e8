"""`ckptlab bench`, `ckptlab bench plan`; `ckptlab bench codecs` is in `bench_codecs`."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from html import escape as escape_html
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ckptlab.bench import Settings
from ckptlab.bench import bench as do_bench
from ckptlab.bench.contenders import OTHER_LAYOUT, Measure, chosen
from ckptlab.bench.report import HEADER, Report
from ckptlab.bench.run import COPIES_IN_MEMORY, COPIES_ON_DISK
from ckptlab.bench.shapes import llama_405b
from ckptlab.cli.bench_codecs import codecs
from ckptlab.cli.door import Door, DoorGroup, json_option, say, say_json, say_table
from ckptlab.cli.size import Size

if TYPE_CHECKING:
    from ckptlab.bench.plan import Planned

BYTES_HELP = f"Of the state; {COPIES_ON_DISK} times as much is needed on the disk, {COPIES_IN_MEMORY} times in memory."
DEFAULT = Settings()


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """World sizes, with commas in between."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Read "8,64"."""
        if not re.fullmatch(r"[1-9]\d{0,5}(,[1-9]\d{0,5})*", str(value)):
            self.fail(f"{value!r}: write numbers of ranks like 8,64,512", param, ctx)
        return [int(number) for number in str(value).split(",")]


@click.group(cls=DoorGroup, invoke_without_command=True)
@click.option("--ranks", default=DEFAULT.ranks, show_default=True, type=click.IntRange(1, 64), help="Ranks, on this machine.")
@click.option("--bytes", "num_bytes", default=decimal(DEFAULT.bytes), show_default=True, type=Size(), help=BYTES_HELP)
@click.option(
    "--layout",
    default=DEFAULT.layout,
    show_default=True,
    type=click.Choice(list(OTHER_LAYOUT)),
    help="How tensors are cut: rows as FSDP2 does, columns as tensor parallel does.",
)
@click.option(
    "--dir",
    "directory",
    default=DEFAULT.directory,
    type=click.Path(path_type=Path),
    help="Where to write; by default here. The disk counts: a folder is made in it, and is gone afterwards.",
)
@click.option("--repeat", default=DEFAULT.repeat, show_default=True, type=click.IntRange(min=1), help="Repetitions that count.")
@click.option("--warm", is_flag=True, help="Read from the page cache, also where it could be emptied.")
@click.option(
    "--device",
    default=DEFAULT.device,
    show_default=True,
    type=click.Choice(["cpu", "cuda"]),
    help="Where the state is; on cuda only the background save is measured.",
)
@click.option("--against", metavar="NAME,…", help="Only these peers: dcp, safetensors, torch; by default all.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with a plot; needs the course.")
@json_option
@click.pass_context
def bench(
    context: click.Context,
    ranks: int,
    num_bytes: int,
    layout: str,
    directory: Path,
    repeat: int,
    warm: bool,
    device: str,
    against: str | None,
    html: Path | None,
    as_json: bool,
) -> int:
    """Measure ckptlab against PyTorch DCP, torch.save, safetensors and what this machine allows, in one run.

    1 when a contender did not load what was saved: its row is void.
    """
    if context.invoked_subcommand is not None:
        return 0
    settings = Settings(
        ranks=ranks, bytes=num_bytes, layout=layout, directory=directory, repeat=repeat, warm=warm, device=device
    )
    report = _with_progress(settings, chosen(against.split(",") if against else None, device))
    if html is not None:
        write_page(report, html)
    if as_json:
        say_json(report.to_json())
    else:
        show(report)
    return 1 if report.is_void else 0


bench.add_command(codecs)


@bench.command(cls=Door)
@click.option("--ranks", default="8,64,512,4096,16384", show_default=True, type=Numbers(), help="World sizes.")
@click.option("--limit", default=20.0, show_default=True, type=float, help="Seconds that DCP may take; else it is left out.")
@json_option
def plan(ranks: list[int], limit: float, as_json: bool) -> int:
    """Plan a save of a model of the size of Llama 3.1 405B on very many ranks, without its tensors: seconds and bytes."""
    from ckptlab.bench.plan import plan_times  # here: it loads torch

    planned = list(plan_times(llama_405b(), ranks, limit))
    if as_json:
        say_json({"model": "Llama 3.1 405B", "plan": [asdict(one) for one in planned]})
        return 0
    header = ("ranks", "plan of rank 0", "manifest", "of it for ranks", "DCP's plan of all")
    say_table([header, *(_cells(one) for one in planned)])
    say("Model and AdamW's state in float32, cut into rows; each rank plans for itself, DCP's first rank for all of them.")
    return 0


def _cells(one: "Planned") -> tuple[str, ...]:
    dcp = "left out" if one.dcp_seconds is None else f"{one.dcp_seconds:.2f} s"
    return f"{one.ranks:,}", f"{one.plan_seconds:.2f} s", decimal(one.manifest_bytes), decimal(one.per_rank_bytes), dcp


def show(report: Report) -> None:
    """Print what was found, a table for each thing that was measured."""
    console = Console()
    for one in report.measured:
        title = f"{one.name}: {decimal(one.num_bytes)}" if one.num_bytes else one.name
        table = Table(*HEADER, title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for column in table.columns:
            column.no_wrap, column.justify = True, "right" if column.header else "left"
        for row in one.table(decimal):
            table.add_row(*map(escape, row))
        console.print(table)
        for remark in one.remarks():
            console.print(remark, style="dim", markup=False, highlight=False)
        console.print()
    for line in _about(report.settings, report.machine):
        console.print(line, markup=False, highlight=False)


def write_page(report: Report, path: Path) -> None:
    """Write a page that needs no network: the plot, and the same in words."""
    from ckptlab.course.figures import bench_times  # here: the course may not be installed

    about = _about(report.settings, report.machine)
    picture = bench_times({one.name: one.to_json() for one in report.measured}, f"ckptlab bench: {about[0].split(';')[0]}")
    remarks = [f"{one.name}: {remark}" for one in report.measured for remark in one.remarks()]
    words = escape_html("\n".join([picture.text, "", *remarks, "", *about]))
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>ckptlab bench</title>'
    path.write_text(f'{head}{picture.figure.to_html(full_html=False)}<pre style="white-space: pre-wrap">{words}</pre></html>')


def _about(settings: Mapping[str, Any], machine: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{settings['ranks']} ranks, state on {settings['device']} in {settings['layout']}, "
        f"reshard_load into {settings['loaded_as']}; "
        f"{settings['repeat']} repetitions in shuffled order, each as long as its slowest rank took. "
        f"Page cache {settings['page_cache']}.",
        f"vs DCP, vs floor: speeds, more is faster. Memory: {settings['peak_extra_bytes']}.",
        f"{machine['cores']} cores, {decimal(int(machine['memory_bytes']))}, {machine['file_system']}, {machine['system']}, "
        f"Python {machine['python']}, torch {machine['torch']}.",
    )


def _with_progress(settings: Settings, measures: tuple[Measure, ...]) -> Report:
    """Measure, with a bar where a person looks on."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting the ranks", total=None)
        return do_bench(
            settings,
            measures,
            lambda what, done, in_all: bar.update(task, description=what, completed=done, total=in_all),
        )
