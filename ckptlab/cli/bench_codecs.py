"""`ckptlab bench codecs`."""

import re
from pathlib import Path
from typing import Any

import click

from ckptlab.bench.codecs import CodecReport, bench_codecs
from ckptlab.cli.door import Door, json_option, say, say_json, say_table


class Steps(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on
    """Steps, with commas in between."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Read "10,500"."""
        if not re.fullmatch(r"[1-9]\d{0,5}(,[1-9]\d{0,5})*", str(value)):
            self.fail(f"{value!r}: write numbers of steps like 10,500", param, ctx)
        return [int(number) for number in str(value).split(",")]


@click.command(cls=Door)
@click.option("--steps", default="10,500", show_default=True, type=Steps(), help="After which steps; fewer take less long.")
@click.option("--on", "steps_on", default=10, show_default=True, type=click.IntRange(1), help="Steps after each resume.")
@click.option("--ranks", default=2, show_default=True, type=click.IntRange(1, 64), help="Ranks that train, on this machine.")
@click.option(
    "--dir",
    "directory",
    default=".",
    type=click.Path(path_type=Path),
    help="Where a folder is made, and is gone afterwards; by default here.",
)
@json_option
def codecs(steps: list[int], steps_on: int, ranks: int, directory: Path, as_json: bool) -> int:
    """Measure what codecs make of the state of the reference job: bytes, speed, error, and the loss after a resume.

    The job tells on stderr how far it is. 1 when an exact codec did not give back every bit.
    """
    report = bench_codecs(directory, steps, steps_on, ranks, lambda line: say(line, err=True))
    if as_json:
        say_json(report.to_json())
    else:
        _say(report)
    return 0 if report.is_right else 1


def _say(report: CodecReport) -> None:
    header = ("after", "tensors", "codec", "left", "encode", "decode", "largest error")
    rows = [
        (
            f"step {size.after}",
            size.kind,
            size.codec,
            f"{size.ratio:.1%}",
            f"{size.encode_mb_s:.0f} MB/s",
            f"{size.decode_mb_s:.0f} MB/s",
            f"{size.error:.3g}" if size.error else "exact",
        )
        for size in report.sizes
    ]
    say_table([header, *rows])
    say("")
    header_on = ("made small before a resume", "step", f"mean loss of {report.steps_on} steps", "beside the unbroken run")
    unbroken = ("nothing", "100.0%", f"{report.loss:.4f}", "it is the unbroken run")
    rows_on = [
        (
            one.what,
            f"{one.stored_bytes / report.raw_bytes:.1%}",
            f"{one.loss:.4f}",
            "bitwise the same" if one.is_bitwise else f"{one.loss - report.loss:+.2g}",
        )
        for one in report.resumed
    ]
    say_table([header_on, unbroken, *rows_on])
    say("")
    for remark in report.remarks():
        say(remark)
