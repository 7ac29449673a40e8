"""`ckptlab show STEP [NAME]` and `ckptlab show RUN`."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict

import click
from rich.filesize import decimal

from ckptlab.cli.door import Door, json_option, say, say_json, say_table, to_place
from ckptlab.errors import FormatError, UsageError
from ckptlab.format.boxes import Box
from ckptlab.format.manifest import Manifest
from ckptlab.format.records import TensorRecord
from ckptlab.steps.events import read_events
from ckptlab.steps.steps import Step, find_step, is_run
from ckptlab.steps.summary import Summary, summarize
from ckptlab.storage import Place

LAST_REFUSALS = 5  # so many are told with their reasons


@click.command(cls=Door)
@click.argument("path", metavar="STEP|RUN", callback=to_place)
@click.argument("name", required=False)
@json_option
def show(path: Place, name: str | None, as_json: bool) -> int:
    """Show what is in STEP, or the one tensor NAME in detail; or what saves and resumes have cost RUN so far."""
    if name is None and is_run(path):
        _say_summary(summarize(read_events(path)), as_json)
        return 0
    found = find_step(path)
    if found.manifest is None:
        raise FormatError(f"{found.path}: {found.fault}; there is nothing to show")
    document = json.loads(found.manifest.to_json())
    if name is not None:
        records = _records(found.manifest, name)
        if as_json:
            say_json({section: {target: document["tensors"][section][target]} for section, target in records})
        for (section, target), record in records.items() if not as_json else ():
            _say_tensor(section, target, record, found.manifest.block_bytes)
    elif as_json:
        say_json({"path": str(found.path), "whole": found.whole, "fault": found.fault, "manifest": document})
    else:
        _say_step(found, found.manifest)
    return 0 if found.whole else 1


def _say_summary(summary: Summary, as_json: bool) -> None:
    if as_json:
        say_json(asdict(summary))
        return
    refused = f", {len(summary.refused)} refused" if summary.refused else ""
    rows = [("saves", f"{summary.committed} committed, {summary.failed} failed{refused}; {decimal(summary.num_bytes)}")]
    if summary.stall is not None:
        share = "" if summary.stall_share is None else f", {summary.stall_share:.1%} of the time from save to save"
        rows.append(("training stood still", f"{summary.stall:.2f} s for a save{share}"))
    if summary.first_saves is not None:
        rows.append(("a save takes", f"{summary.first_saves:.2f} s at first, {summary.last_saves:.2f} s lately"))
    for resume in summary.resumes:
        lost = "" if resume.lost_seconds is None else f", {resume.lost_seconds:.1f} s after it was saved or loaded before"
        refused = f"; refused: {', '.join(map(str, resume.refused))}" if resume.refused else ""
        rows.append(("resumed", f"from step {resume.step}{lost}{refused}"))
    rows += [("refused", f"step {refusal.step}: {refusal.why}") for refusal in summary.refused[-LAST_REFUSALS:]]
    say_table(rows)


def _say_step(step: Step, manifest: Manifest) -> None:
    say(f"step {step.number}: {step.verdict}; {decimal(step.num_bytes)} in {len(manifest.files)} files")
    if manifest.base is not None:
        say(f"stored against step {manifest.base}, without which it cannot be read")
    if manifest.inexact:
        say(f"inexact: {len(manifest.inexact)} tensors were made small as int8")
    for section, records in manifest.tensors.items():
        say(f"{section}: {len(records)} tensors")
        say_table([(name, *_summary(record)) for name, record in records.items()], indent="  ")
    for title, members in (
        ("aliases", manifest.aliases),
        ("saved_by", manifest.saved_by),
        ("exact_if", manifest.exact_if),
    ):
        _say_members(title, members)


def _say_members(title: str, members: Mapping[str, object]) -> None:
    if members:
        say(title)
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in members.items()}
        say_table(list(texts.items()), indent="  ")


def _summary(record: TensorRecord) -> tuple[object, ...]:
    files = sorted({piece.file for piece in record.pieces})
    where = f"{files[0]} to {files[-1]}" if len(files) > 1 else "".join(files)
    count = len(record.pieces)
    how = f"{count} piece{'s' * (count != 1)}"
    if record.encoding is not None:
        how = f"{record.encoding.codec}, {decimal(record.stored_bytes)} of {decimal(record.spec.num_bytes)}"
    return record.spec.dtype, list(record.spec.shape), how, where


def _records(manifest: Manifest, name: str) -> dict[tuple[str, str], TensorRecord]:
    """Find a tensor by section and name; an alias stands for its tensor."""
    target = manifest.aliases.get(name, name)
    found = {(section, target): records[target] for section, records in manifest.tensors.items() if target in records}
    if not found:
        names = [known for records in manifest.tensors.values() for known in records]
        near = difflib.get_close_matches(name, [*names, *manifest.aliases])
        hint = f"did you mean {' or '.join(near)}?" if near else "show the step without a name to see all"
        raise UsageError(f"step {manifest.step} has no tensor {name!r}; {hint}")
    return found


def _say_tensor(section: str, name: str, record: TensorRecord, block_bytes: int) -> None:
    spec = record.spec
    say(f"{section} {name}: {spec.dtype} {list(spec.shape)}, {spec.num_bytes} bytes")
    if (encoding := record.encoding) is not None:
        exact = "exact" if encoding.is_exact else f"inexact, in blocks of {encoding.block}"
        frames = f"in frames of {encoding.frame_bytes} bytes: {len(encoding.stored_bytes)}"
        say(f"  {encoding.codec} ({exact}), {record.stored_bytes} bytes stored, {frames}")
    rows = [("elements", "file", "bytes", "blocks")]
    for piece, (file, begin, end) in zip(record.pieces, record.spans(), strict=True):
        blocks = f"{begin // block_bytes}-{max(end - 1, begin) // block_bytes}"
        rows.append((_slices(piece.box), file, f"{begin}-{end}", blocks))
    say_table(rows, indent="  ")


def _slices(box: Box) -> str:
    return f"[{', '.join(f'{at}:{at + size}' for at, size in zip(box.offset, box.shape, strict=True))}]"
