"""What codecs make of a real training state, early and late: bytes, speed, errors, and what a resume from it does to the loss.

The state is the reference job's, trained here. Torch is loaded by the ranks only.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from ckptlab.errors import StepError, UsageError
from ckptlab.format.codecs import CODECS, FLOATING, FRAME_BYTES, INT8, PLANES, XOR, decode, encode
from ckptlab.format.dtypes import numpy_dtype
from ckptlab.format.names import step_name
from ckptlab.steps.frames import Frames, Tensor
from ckptlab.steps.shrink import Rule, Shrunk, shrink
from ckptlab.steps.steps import Step, find_step
from ckptlab.train.launch import launch
from ckptlab.train.options import Options
from ckptlab.train.records import read_records

KINDS = ("parameters", "exp_avg", "exp_avg_sq")
DISTANCE = 5  # steps between a step and the one that it is stored against
REPEAT = 3  # the fastest counts: these are small tensors on a machine that has other work
PAYS = 0.95  # of its bytes; a codec that leaves more does not pay
Say = Callable[[str], object]

Frame = tuple[str, bytes, bytes | None]
"""Dtype, bytes, and the same bytes in the step before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a codec made of the tensors of one kind after so many steps; `error` is the largest, 0 for equal bits."""

    after: int
    kind: str
    codec: str
    raw_bytes: int
    stored_bytes: int
    encode_mb_s: float
    decode_mb_s: float
    error: float

    @property
    def ratio(self) -> float:
        """Stored bytes by raw ones: less is better."""
        return self.stored_bytes / self.raw_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The mean loss of the steps after a resume from a small step, and whether every loss was bitwise the unbroken run's."""

    what: str
    stored_bytes: int
    loss: float
    is_bitwise: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecReport:
    """All figures; `loss` is the unbroken run's mean over the same `steps_on` steps, `raw_bytes` are the step's before."""

    ranks: int
    steps_on: int
    raw_bytes: int
    loss: float
    sizes: Sequence[Size]
    resumed: Sequence[Resumed]

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        sizes = [{**asdict(size), "ratio": round(size.ratio, 4)} for size in self.sizes]
        return {**asdict(self), "sizes": sizes, "remarks": list(self.remarks())}

    @property
    def is_right(self) -> bool:
        """Whether exact codecs gave back every bit, and a resume from them was the unbroken run."""
        exact = (PLANES, XOR)
        return all(size.error == 0 for size in self.sizes if size.codec in exact) and all(
            one.is_bitwise for one in self.resumed if one.what in exact
        )

    def remarks(self) -> Iterator[str]:
        """Say where a codec does not pay, and what it costs."""
        planes_of = {(size.after, size.kind): size.ratio for size in self.sizes if size.codec == PLANES}
        for size in self.sizes:
            where, alone = f"{size.kind} after step {size.after}", planes_of[size.after, size.kind]
            if size.ratio > PAYS:
                yield f"{size.codec} does not pay for {where}: it leaves {size.ratio:.0%} of the bytes"
            elif size.codec == XOR and size.ratio > alone:
                yield f"{XOR} does not pay for {where}: it leaves {size.ratio:.1%}, {PLANES} alone {alone:.1%}"
        for after in dict.fromkeys(size.after for size in self.sizes):
            raw, planes, xor = (_total(self.sizes, after, codec) for codec in (None, PLANES, XOR))
            yield (
                f"after step {after} {PLANES} saves {1 - planes / raw:.0%}, and {XOR} {1 - xor / raw:.0%} against the step "
                f"{DISTANCE} before, to which it is tied then: most bits of trained values are noise, and stay"
            )
        inexact = [one for one in self.resumed if not one.is_bitwise]
        if inexact:
            most = max(inexact, key=lambda one: abs(one.loss - self.loss))
            yield (
                f"int8 is another run: the mean loss of {self.steps_on} steps moves by up to {most.loss - self.loss:+.2g} "
                f"({most.what}); so a resume has to allow it"
            )


def bench_codecs(directory: Path, after: Sequence[int], steps_on: int, ranks: int, say: Say) -> CodecReport:
    """Train, measure after each of these steps, and go on from small forms of the last; what is on the disk for it goes.

    Raises:
        UsageError: the directory is not there, or a step is too early to have one before it.
        WorldError: a rank is lost.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; give one on a disk with 200 MB free")
    if min(after, default=0) <= DISTANCE or any(step % DISTANCE for step in after):
        raise UsageError(f"{list(after)}: steps are multiples of {DISTANCE} from {2 * DISTANCE} on")
    with tempfile.TemporaryDirectory(prefix=".ckptlab-codecs-", dir=directory) as folder:
        job = Options(run=Path(folder) / "run", every=DISTANCE, keep_last=2)
        sizes: list[Size] = []
        for steps in sorted(after):
            say(f"training to step {steps}")
            launch(replace(job, steps=steps), ranks=ranks, max_restarts=0, say=say)
            say(f"encoding step {steps}")
            sizes += _sizes(job.run, steps)
        last = max(after)
        raw_bytes = find_step(job.run / step_name(last)).num_bytes
        resumed = [_go_on(job, last, steps_on, ranks, what, rules, say) for what, rules in _variants().items()]
    unbroken, *others = resumed
    bitwise = [replace(one, is_bitwise=losses == unbroken[1]) for one, losses in others]
    return CodecReport(ranks=ranks, steps_on=steps_on, raw_bytes=raw_bytes, loss=unbroken[0].loss, sizes=sizes, resumed=bitwise)


def _variants() -> dict[str, list[Rule]]:
    """Name what is made small before a resume; first the step as it is."""
    return {
        "as it is": [],
        PLANES: [Rule("*", PLANES)],
        XOR: [Rule("*", XOR)],
        f"{INT8}, parameters": [Rule("model/*", INT8)],
        f"{INT8}, exp_avg": [Rule("exp_avg::*", INT8)],
        f"{INT8}, exp_avg_sq": [Rule("exp_avg_sq::*", INT8)],
        f"{INT8}, all": [Rule("*", INT8)],
    }


def _go_on(
    job: Options, step: int, steps_on: int, ranks: int, what: str, rules: Sequence[Rule], say: Say
) -> tuple[Resumed, list[float]]:
    """Go on from a small form of a step in a copy of the run; return what came of it, and all losses."""
    say(f"going on from step {step}, {what}")
    copy = job.run.with_name("copy")
    shutil.copytree(job.run, copy)
    try:
        done = shrink(copy / step_name(step), rules) if rules else []
        if not all(isinstance(one, Shrunk) for one in done):
            raise StepError(f"step {step}, {what}: {done}")
        stored = find_step(copy / step_name(step)).num_bytes
        on = replace(job, run=copy, steps=step + steps_on, every=10**6, keep_last=10**6, allow_inexact=True)
        launch(on, ranks=ranks, max_restarts=0, say=say)
        losses = [record.loss for rank in range(ranks) for record in read_records(copy, rank) if record.step > step]
    finally:
        shutil.rmtree(copy)
    return Resumed(what=what, stored_bytes=stored, loss=fmean(losses), is_bitwise=False), losses


def _sizes(run: Path, steps: int) -> Iterator[Size]:
    frames = _frames(find_step(run / step_name(steps)), find_step(run / step_name(steps - DISTANCE)))
    for kind in KINDS:
        for codec in CODECS:
            if frames[kind]:
                yield _size(steps, kind, codec, frames[kind])


def _frames(step: Step, before: Step) -> Mapping[str, list[Frame]]:
    """Read a step's tensors by kind, frame by frame."""
    assert step.manifest is not None, "just saved"
    assert before.manifest is not None, "just saved"
    found: dict[str, list[Frame]] = {kind: [] for kind in KINDS}
    with Frames(step.path, step.manifest) as now, Frames(before.path, before.manifest) as then:
        for section, named in step.manifest.tensors.items():
            for name, record in named.items():
                kind = KINDS[0] if section == "model" else name.partition("::")[0]
                if kind in found and record.spec.dtype in FLOATING:
                    found[kind] += _of_tensor(now, then, (section, name), record.spec.dtype)
    return found


def _of_tensor(now: Frames, then: Frames, tensor: Tensor, dtype: str) -> Iterator[Frame]:
    for one, other in zip(now.windows(tensor, FRAME_BYTES), then.windows(tensor, FRAME_BYTES), strict=True):
        yield dtype, bytes(one), bytes(other)


def _size(after: int, kind: str, codec: str, frames: Sequence[Frame]) -> Size:
    """Encode and decode all frames of a kind; a frame that does not get smaller is stored as it is."""
    raw_bytes = sum(len(raw) for _, raw, _ in frames)
    encoding, decoding = [], []
    for _ in range(REPEAT):
        since = time.perf_counter()
        stored = [encode(codec, raw, dtype, base if codec == XOR else None) for dtype, raw, base in frames]
        encoding.append(time.perf_counter() - since)
        since = time.perf_counter()
        decoded = [
            raw if frame is None else decode(codec, frame, dtype, len(raw), base=base if codec == XOR else None)
            for frame, (dtype, raw, base) in zip(stored, frames, strict=True)
        ]
        decoding.append(time.perf_counter() - since)
    return Size(
        after=after,
        kind=kind,
        codec=codec,
        raw_bytes=raw_bytes,
        stored_bytes=sum(
            len(raw) if frame is None else min(len(frame), len(raw)) for frame, (_, raw, _) in zip(stored, frames, strict=True)
        ),
        encode_mb_s=round(raw_bytes / min(encoding) / 1e6, 1),
        decode_mb_s=round(raw_bytes / min(decoding) / 1e6, 1),
        error=max(_distance(dtype, raw, bytes(back)) for back, (dtype, raw, _) in zip(decoded, frames, strict=True)),
    )


def _distance(dtype: str, one: bytes, other: bytes) -> float:
    if one == other:
        return 0.0
    values = [np.frombuffer(data, numpy_dtype(dtype)).astype(np.float64) for data in (one, other)]
    return float(np.abs(values[0] - values[1]).max())


def _total(sizes: Sequence[Size], after: int, codec: str | None) -> int:
    """Sum the stored bytes of a codec after a step; None: the raw ones."""
    chosen = [size for size in sizes if size.after == after and size.codec == (codec or PLANES)]
    return sum(size.raw_bytes if codec is None else size.stored_bytes for size in chosen)
