"""`ckptlab shrink STEP|RUN`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import click
from rich.filesize import decimal

from ckptlab.cli.bar import bytes_bar
from ckptlab.cli.door import Door, json_option, say, say_json, to_place
from ckptlab.format.codecs import CODECS, INT8, PLANES
from ckptlab.steps.shrink import Left, Rule, Shrunk
from ckptlab.steps.shrink import shrink as do_shrink
from ckptlab.steps.small import SmallTensor
from ckptlab.steps.steps import Step, find_steps
from ckptlab.storage import Place

CODEC_HELP = "planes+zstd and xor+planes+zstd (against an earlier step) are exact; int8 is not, and a resume has to allow it."
MATCH_HELP = "Only tensors whose name or section/name fits, such as 'optim/*'; '=CODEC' or '=none' behind it is for them."


@click.command(cls=Door)
@click.argument("path", metavar="STEP|RUN", callback=to_place)
@click.option("--codec", type=click.Choice(CODECS), default=PLANES, show_default=True, help=CODEC_HELP)
@click.option("--match", "patterns", metavar="PATTERN[=CODEC]", multiple=True, help=f"{MATCH_HELP} The first that fits counts.")
@click.option("--parent", type=click.IntRange(min=0), metavar="N", help="Store against step N; by default the one before.")
@json_option
def shrink(path: Place, codec: str, patterns: Sequence[str], parent: int | None, as_json: bool) -> int:
    """Make STEP small, or every step of RUN but the newest, which a resume takes.

    The small form is decoded and compared before it takes the step's place. A run in use may go on meanwhile.
    """
    rules = [_rule(pattern, codec) for pattern in patterns] or [Rule("*", codec)]
    done = _shrink(path, find_steps(path), rules, parent)
    if as_json:
        say_json({"steps": [_document(one) for one in done if isinstance(one, Shrunk)], "left": _left(done)})
        return 0
    for one in done:
        for line in _lines(one):
            say(line)
    return 0


def _rule(pattern: str, codec: str) -> Rule:
    before, _, named = pattern.rpartition("=")
    return Rule(before, None if named == "none" else named) if before and named in (*CODECS, "none") else Rule(pattern, codec)


def _shrink(path: Place, steps: list[Step], rules: list[Rule], parent: int | None) -> list[Shrunk | Left]:
    """Make them small, with a bar where a person looks on."""
    records = (r for step in steps if step.manifest for named in step.manifest.tensors.values() for r in named.values())
    with bytes_bar() as bar:
        task = bar.add_task("", total=2 * sum(record.spec.num_bytes for record in records))
        return do_shrink(path, rules, parent=parent, progress=lambda num_bytes: bar.advance(task, num_bytes))


def _lines(one: Shrunk | Left) -> Iterable[str]:
    if isinstance(one, Left):
        yield f"step {one.step}: left as it is: {one.why}"
        return
    base = "" if one.base is None else f"; stored against step {one.base}, which stays as long as this one does"
    yield f"step {one.step}: {decimal(one.before)} are {decimal(one.after)} now, {one.after / one.before:.0%}{base}"
    for codec, tensors in _by_codec(one.tensors).items():
        raw, stored = (sum(getattr(tensor, name) for tensor in tensors) for name in ("raw_bytes", "stored_bytes"))
        exact = "" if codec is None else "; exact, compared bit for bit"
        if codec == INT8:
            most = max(tensors, key=lambda tensor: tensor.error)
            exact = f"; inexact: {most.section} {most.name!r} is off by up to {most.error:.3g}"
        yield f"  {codec or 'as they were'}: {len(tensors)} tensors, {decimal(stored)} of {decimal(raw)}{exact}"


def _by_codec(tensors: Iterable[SmallTensor]) -> dict[str | None, list[SmallTensor]]:
    found: dict[str | None, list[SmallTensor]] = defaultdict(list)
    for tensor in tensors:
        found[tensor.codec].append(tensor)
    return found


def _document(one: Shrunk) -> dict[str, object]:
    return asdict(one)


def _left(done: Iterable[Shrunk | Left]) -> dict[int, str]:
    return {one.step: one.why for one in done if isinstance(one, Left)}
