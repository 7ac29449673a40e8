"""Is what is wanted in the step? Names, dtypes and shapes, compared before anything is read. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckptlab.checkpoint.tensor_bytes import DTYPES
from ckptlab.checkpoint.tensors import LocalTensor
from ckptlab.errors import LoadError
from ckptlab.format.header import TensorSpec
from ckptlab.format.records import TensorRecord

FLOATS = {name for name, dtype in DTYPES.items() if dtype.is_floating_point}

Read = tuple[LocalTensor, TensorRecord, str]
"""What a rank wants of a tensor, where the step has it, and under which name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """What a rank wants of a section, held against what the step has.

    Attributes:
        reads: what to read, in no particular order.
        missing: names that are wanted and not in the step.
        unexpected: names that are in the step and not wanted by this rank.
        ties: two reads of one wanted tensor, by its own name and by a further one that the step has as well.
    """

    reads: list[Read]
    missing: list[str]
    unexpected: list[str]
    ties: list[tuple[Read, Read]]


def match(
    section: str,
    wanted: Mapping[str, LocalTensor],
    held: Mapping[str, TensorRecord],
    aliases: Mapping[str, str],
    rename: Mapping[str, str],
    cast: bool,
    ties: Mapping[str, str],
) -> Matched:
    """Find what is wanted in the step.

    `rename` says under which name the step has what is wanted. A name that the step has as an alias is read from the tensor
    that it is tied to. With `cast` a floating dtype may be read as another one. `ties` are further names of what is wanted:
    where the step has such a name too, as other systems save ties, it is not unexpected.

    Raises:
        LoadError: a dtype or a shape differs. Names the first few.
    """
    theirs = {name: rename.get(name, name) for name in wanted}
    theirs = {name: aliases.get(other, other) for name, other in theirs.items()}
    reads = {name: (local, held[theirs[name]], theirs[name]) for name, local in wanted.items() if theirs[name] in held}
    _refuse_load(
        section,
        [
            f"{name!r} is {_words(record.spec)} in the step, wanted {_words(local.spec)}"
            for name, (local, record, _) in sorted(reads.items())
            if not _fits(record.spec, local.spec, cast)
        ],
    )
    unexpected = held.keys() - set(theirs.values())
    tied = {alias: reads[name] for alias, name in ties.items() if alias in unexpected and name in reads}
    return Matched(
        reads=list(reads.values()),
        missing=sorted(wanted.keys() - reads.keys()),
        unexpected=sorted(unexpected - tied.keys()),
        ties=[(read, (read[0], held[alias], alias)) for alias, read in tied.items()],
    )


def refuse_names(section: str, missing: Sequence[str], unexpected: Sequence[str], rename: Mapping[str, str]) -> None:
    """Raise a `LoadError` that says the first few of the names, if there are any."""
    wrong = [f"{name!r}{f', there {rename[name]!r},' if name in rename else ''} is not in the step" for name in missing]
    _refuse_load(section, wrong + [f"{name!r} is in the step and not wanted" for name in unexpected])


def refuse_renames(names: Sequence[str]) -> None:
    """Raise a `LoadError` that says the first few names that were to be read by another name, and that no rank wants."""
    _refuse_load("rename", [f"{name!r} is not wanted by any rank" for name in names])


def _refuse_load(what: str, wrong: Sequence[str]) -> None:
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        weights = ", or take the weights alone: load_weights(rename=, cast=, strict=False)" if what == "model" else ""
        raise LoadError(f"{what}: {'; '.join(wrong[:3])}{more}; load it into the model that it was saved from{weights}")


def _fits(held: TensorSpec, wanted: TensorSpec, cast: bool) -> bool:
    same_dtype = held.dtype == wanted.dtype or (cast and {held.dtype, wanted.dtype} <= FLOATS)
    return same_dtype and held.shape == wanted.shape


def _words(spec: TensorSpec) -> str:
    return f"{spec.dtype} {list(spec.shape)}"
