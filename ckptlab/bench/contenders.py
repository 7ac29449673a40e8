"""What is measured, and who runs in it: one list. Pure; torch is loaded only on the ranks, which import a contender by name.

A contender is a generator that every rank runs with its `Stage`. What it does between its two `yield`s is timed, unless the
second one gives the seconds itself; before them it makes ready, after them it compares what it loaded with what was saved.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ckptlab.errors import UsageError

FSYNC_ADDED = "fsync added: it has none of its own"


class Role(StrEnum):
    """What a contender is in a measure."""

    OWN = "own"
    DCP = "dcp"  # the one that `vs_dcp` compares with; of several the fastest
    PEER = "peer"
    FLOOR = "floor"  # the one that `vs_floor` compares with
    BESIDE = "beside"  # another floor, shown only


@dataclass(frozen=True, slots=True)
class Contender:
    """One who is measured.

    Attributes:
        name: begins with the library.
        path: "module:name" of its generator.
        role: what others are compared with.
        note: what a reader has to know to compare.
    """

    name: str
    path: str
    role: Role
    note: str = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that is measured.

    Attributes:
        name: of the measure.
        contenders: who runs in it.
        sections: of the state that it moves.
        on_cuda: whether it is measured with tensors on a GPU too.
    """

    name: str
    contenders: tuple[Contender, ...]
    sections: tuple[str, ...] = ("model", "optim")
    on_cuda: bool = False


_OWN, _PEERS, _FLOORS, _TRAINING = (f"ckptlab.bench.{module}" for module in ("own", "peers", "floors", "training"))
MEASURES = (
    Measure(
        "save",
        (
            Contender("ckptlab.save", f"{_OWN}:save_all", Role.OWN, "durable, with checksums"),
            Contender("ckptlab.save by rank", f"{_OWN}:save_by_rank", Role.OWN, 'the same, files="by_rank": a file a rank'),
            Contender("dcp.save", f"{_PEERS}:dcp_save", Role.DCP, "fsyncs its files; fsync of the directory added"),
            Contender("torch.save", f"{_PEERS}:torch_save", Role.PEER, f"a file a rank; {FSYNC_ADDED}"),
            Contender("safetensors.save_file", f"{_PEERS}:safetensors_save", Role.PEER, f"a file a rank; {FSYNC_ADDED}"),
            Contender("pwrite + fsync", f"{_FLOORS}:write_all", Role.FLOOR, "a file a rank"),
        ),
    ),
    Measure(
        "hf_export",
        (
            Contender("ckptlab.save", f"{_OWN}:save_model", Role.OWN, "the model only: its files are Hugging Face's"),
            Contender(
                "dcp.save to HF", f"{_PEERS}:dcp_hf_consolidated", Role.DCP, "consolidated by rank 0; fsync of the result added"
            ),
            Contender(
                "dcp.save to HF, by all",
                f"{_PEERS}:dcp_hf_consolidated_by_all",
                Role.DCP,
                "consolidated by every rank, a file each; fsync of the result added",
            ),
            Contender(
                "dcp.save to HF pieces", f"{_PEERS}:dcp_hf_sharded", Role.PEER, "not consolidated: transformers cannot open it"
            ),
            Contender("pwrite + fsync", f"{_FLOORS}:write_model", Role.FLOOR, "a file a rank"),
        ),
        sections=("model",),
    ),
    Measure(
        "background_stall",
        (
            Contender("ckptlab background", f"{_OWN}:save_behind", Role.OWN, "its buffer is kept from save to save"),
            Contender("dcp.async_save", f"{_PEERS}:dcp_async_save", Role.DCP, "as it comes: a new stager each time"),
            Contender("dcp.async_save, kept", f"{_PEERS}:dcp_async_save_kept", Role.PEER, "its stager has its buffers already"),
            Contender("memory copy", f"{_FLOORS}:copy", Role.FLOOR, "into memory that is there; a GPU's into pinned memory"),
        ),
        on_cuda=True,
    ),
    Measure(
        "training_step",
        (
            Contender("ckptlab background", f"{_TRAINING}:beside_own", Role.OWN, "while it writes"),
            Contender("dcp.async_save", f"{_TRAINING}:beside_dcp", Role.DCP, "while it writes"),
            Contender("no save", f"{_TRAINING}:alone", Role.FLOOR, "vs floor is the share of the speed that is left"),
        ),
        sections=(),
        on_cuda=True,
    ),
    Measure(
        "load",
        (
            Contender("ckptlab.load", f"{_OWN}:load_checked_first", Role.OWN, "two passes, both verified"),
            Contender("ckptlab resume", f"{_OWN}:load_once", Role.OWN, "one pass, verified, as Checkpointer.resume loads"),
            Contender("dcp.load", f"{_PEERS}:dcp_load", Role.DCP, "verifies nothing"),
            Contender("read", f"{_FLOORS}:read", Role.FLOOR, "a file a rank"),
            Contender("memory copy", f"{_FLOORS}:copy", Role.BESIDE, "into memory that is there"),
        ),
    ),
    Measure(
        "reshard_load",
        (
            Contender("ckptlab.load", f"{_OWN}:reshard_checked_first", Role.OWN, "two passes, both verified"),
            Contender("ckptlab resume", f"{_OWN}:reshard_once", Role.OWN, "one pass, verified, as Checkpointer.resume loads"),
            Contender("dcp.load", f"{_PEERS}:dcp_reshard", Role.DCP, "verifies nothing"),
            Contender("read", f"{_FLOORS}:read_resharded", Role.FLOOR, "a file a rank, cut as it is wanted"),
        ),
    ),
)
OTHER_LAYOUT: Mapping[str, str] = {"rows": "columns", "columns": "rows", "replicated": "rows"}
"""Layout of the state to the layout in which `reshard_load` wants it."""


def chosen(against: Sequence[str] | None, device: str = "cpu") -> tuple[Measure, ...]:
    """Return a device's measures with the peers of these names only; ckptlab and the floors are always in. None: all peers.

    Raises:
        UsageError: there is no such peer.
    """
    peers = sorted({_library(one) for measure in MEASURES for one in measure.contenders if one.role in (Role.DCP, Role.PEER)})
    if unknown := sorted(set(against or ()) - set(peers)):
        raise UsageError(f"there is no peer {unknown[0]!r}; there are {', '.join(peers)}")
    on_device = [measure for measure in MEASURES if device == "cpu" or measure.on_cuda]
    if against is None:
        return tuple(on_device)
    kept = [replace(measure, contenders=tuple(_kept(measure, against))) for measure in on_device]
    return tuple(measure for measure in kept if {one.role for one in measure.contenders} - {Role.FLOOR, Role.BESIDE})


def _kept(measure: Measure, against: Sequence[str]) -> list[Contender]:
    return [one for one in measure.contenders if one.role not in (Role.DCP, Role.PEER) or _library(one) in against]


def _library(contender: Contender) -> str:
    return re.split(r"\W", contender.name)[0]
