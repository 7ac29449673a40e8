"""Do all ranks mean the same step? Pure: what each rank puts forward, and what the coordinator reads from it.

First every rank sends digests only (`propose`), so that planning costs a rank what its own tensors cost. Where digests differ,
`subjects_of_dispute` names the subjects, the ranks send these in detail (`details`), and `refuse` says in words who differs.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from isal import isal_zlib

from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.plan import SavePlan, Tensors
from ckptlab.checkpoint.tensors import LocalTensor, TensorBytes, to_exact
from ckptlab.errors import ReplicaMismatch, SaveError
from ckptlab.format.exact import encode

CHUNK_BYTES = 4 * 1024 * 1024


def propose(plan: SavePlan, contents: Contents) -> dict[str, Any]:
    """Return this rank's digests: of the tensors' descriptions, of the common state, of each set of replicas."""
    plain = {subject: _digest(tell(plan, contents)) for subject, tell in PLAIN_SUBJECTS.items()}
    return {**plain, "replicas": _replica_sums(plan.tensors)}


def subjects_of_dispute(proposals: list[dict[str, Any]]) -> list[str]:
    """Return the subjects on which the ranks differ: of `PLAIN_SUBJECTS`, or `replicas`."""
    if plain := [subject for subject in PLAIN_SUBJECTS if any(p[subject] != proposals[0][subject] for p in proposals)]:
        return plain  # which replicas belong together is known only when the tensors are the same
    return ["replicas"] if _differing_sets(proposals) else []


def details(subjects: list[str], plan: SavePlan, contents: Contents) -> dict[str, Any]:
    """Return what this rank has to say on each subject: name to description, state, or checksum of the replica."""
    replicas = {"replicas": lambda *_: {name: [_set_name(local), _sum(local)] for name, local in _replicated(plan.tensors)}}
    known = PLAIN_SUBJECTS | replicas
    return {subject: known[subject](plan, contents) for subject in subjects}


def refuse(subjects: list[str], everybody: list[dict[str, Any]]) -> NoReturn:
    """Raise the error that names the first difference in the ranks' `details`.

    Raises:
        ReplicaMismatch: copies of a tensor differ.
        SaveError: anything else differs.
    """
    subject = subjects[0]
    told = [detail[subject] for detail in everybody]
    if subject == "replicas":
        _refuse_replicas(told)
    for rank, other in enumerate(told):
        for name in sorted(told[0].keys() | other.keys()):
            first, found = told[0].get(name, "nothing"), other.get(name, "nothing")
            if first != found:
                raise SaveError(f"{subject}: {name!r} is {found} on rank {rank} and {first} on rank 0; it must be the same")
    raise SaveError(f"{subject}: the ranks differed and then did not; something changes them while they are saved")


def _refuse_replicas(told: list[dict[str, Any]]) -> None:
    first: dict[tuple[str, str], tuple[int, int]] = {}
    for rank, named in enumerate(told):
        for name, (members, checksum) in named.items():
            other, expected = first.setdefault((name, members), (rank, checksum))
            if checksum != expected:
                raise ReplicaMismatch(
                    f"{name!r} differs between rank {other} (crc32 {expected:08x}) and rank {rank} (crc32 {checksum:08x}), "
                    f"which should hold equal copies; find where the ranks drifted apart, or load a step from before"
                )


def _differing_sets(proposals: list[dict[str, Any]]) -> bool:
    seen: dict[str, int] = {}
    return any(seen.setdefault(name, crc) != crc for p in proposals for name, crc in p["replicas"].items())


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _descriptions(tensors: Tensors) -> dict[str, Any]:
    return {
        f"{section} {name}": [local.spec.dtype, list(local.spec.shape)]
        for section, named in tensors.items()
        for name, local in named.items()
    }


PLAIN_SUBJECTS: dict[str, Callable[[SavePlan, Contents], dict[str, Any]]] = {
    "step": lambda plan, contents: {"step": plan.step},
    "tensors": lambda plan, contents: _descriptions(plan.tensors),
    "aliases": lambda plan, contents: dict(contents.aliases),
    "state": lambda plan, contents: {k: encode(to_exact(v)).decode() for k, v in contents.state.items()},
}


def _replicated(tensors: Tensors) -> Iterable[tuple[str, LocalTensor]]:
    for section, named in tensors.items():
        yield from ((f"{section} {name}", local) for name, local in named.items() if len(local.replicas) > 1)


def _set_name(local: LocalTensor) -> str:
    return ",".join(map(str, local.replicas))


def _replica_sums(tensors: Tensors) -> dict[str, int]:
    sums: dict[str, int] = {}
    for _, local in _replicated(tensors):
        members = _set_name(local)
        sums[members] = _sum(local, sums.get(members, 0))
    return sums


def _sum(local: LocalTensor, crc: int = 0) -> int:
    data = TensorBytes(local.data)
    for begin in range(0, data.num_bytes, CHUNK_BYTES):
        crc = isal_zlib.crc32(data.read(begin, min(begin + CHUNK_BYTES, data.num_bytes)), crc)
    return crc
