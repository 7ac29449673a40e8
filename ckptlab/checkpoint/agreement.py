"""Do all ranks mean the same step? Pure: what each rank puts forward, and what the coordinator reads from it.

First every rank sends digests only (`propose`), so that planning costs a rank what its own tensors cost. Where digests differ,
`subject_of_dispute` names one, the ranks send it in detail (`detail`), and `settle` unites what they say or refuses in words.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from isal import isal_zlib

from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.plan import SavePlan, Tensors
from ckptlab.checkpoint.tensor_bytes import TensorBytes, to_exact
from ckptlab.checkpoint.tensors import LocalTensor
from ckptlab.errors import ReplicaMismatch, SaveError
from ckptlab.format.checksums import BLOCK_BYTES
from ckptlab.format.exact import decode, encode
from ckptlab.format.header import TensorSpec
from ckptlab.steps.members import compare_members


def propose(plan: SavePlan, contents: Contents) -> dict[str, Any]:
    """Return this rank's digests: of what must or may be the same on all ranks, and of each set of replicas."""
    plain = {subject: _digest(tell(plan, contents)) for subject, tell in PLAIN_SUBJECTS.items()}
    must_ask = not plan.is_united and any(not local.replicas for _, local in _own(plan))
    return {**plain, "must_ask": must_ask, "replicas": _replica_sums(plan.tensors)}


def subject_of_dispute(proposals: list[dict[str, Any]]) -> str | None:
    """Return the first subject on which the ranks differ: one of `PLAIN_SUBJECTS`, or `replicas`."""
    plain = [subject for subject in PLAIN_SUBJECTS if any(p[subject] != proposals[0][subject] for p in proposals)]
    if not plain and any(proposal["must_ask"] for proposal in proposals):
        return "tensors"
    if plain:
        return plain[0]  # which replicas belong together is known only when the tensors are the same
    return "replicas" if _differing_sets(proposals) else None


def detail(subject: str, plan: SavePlan, contents: Contents) -> dict[str, Any]:
    """Return what this rank has to say on a subject: by name a description, a state, or the checksum of a replica."""
    if subject == "tensors":
        return {name: [_spec(local.spec), local.boxes] for name, local in _own(plan)}
    if subject == "replicas":
        return {
            name: [_set_name(local.replicas), _sum(local), name in contents.buffers]
            for name, local in _replicated(plan.tensors)
        }
    return PLAIN_SUBJECTS[subject](plan, contents)


def settle(subject: str, told: list[dict[str, Any]]) -> Any:
    """Return what the ranks' details come to, if they can be united. Names may be held by some ranks only, buffers may differ.

    Raises:
        ReplicaMismatch: copies of a parameter or of an optimizer's state differ.
        SaveError: anything else differs.
    """
    if subject == "replicas":
        return _buffers_to_keep_apart(told)
    all_names = sorted(set().union(*told))
    if subject in ("aliases", "by_name"):
        return {name: _the_same(subject, name, told) for name in all_names}
    if subject == "tensors":
        specs = [{name: spec for name, (spec, _) in named.items()} for named in told]
        return {name: [_the_same(subject, name, specs), _holders(name, told)] for name in all_names}
    for rank, named in enumerate(told):
        for path, what in compare_members("", *({k: decode(v.encode()) for k, v in one.items()} for one in (told[0], named))):
            raise SaveError(f"{subject}: {path!r} differs between rank 0 and rank {rank}: {what}; it must be the same")
    raise _unstable(subject)


def settled(plan: SavePlan, subject: str, answer: Any) -> SavePlan:
    """Return the plan by which every rank goes on."""
    if subject == "replicas":
        return plan.keeping_apart(answer)
    if subject == "aliases":
        return replace(plan, aliases=answer)
    if subject == "by_name":
        return replace(plan, state={**plan.state, **_by_member(answer)})
    specs: dict[str, dict[str, TensorSpec]] = {section: {} for section in plan.specs}
    replicas: dict[str, dict[str, list[int]]] = {section: {} for section in plan.specs}
    own = dict(_own(plan))
    for name, ((dtype, shape), holders) in answer.items():
        section, _, fqn = name.partition(" ")
        specs[section][fqn] = TensorSpec(dtype, tuple(shape))
        if name in own:
            replicas[section][fqn] = holders[json.dumps(own[name].boxes)]
    return plan.united(specs, replicas)


def _of_named(plan: SavePlan, contents: Contents) -> dict[str, str]:
    """Return what the state's members `by_name` hold, as (member, name) in one word each."""
    return {f"{member} {name}": _text(v) for member in sorted(contents.by_name) for name, v in plan.state[member].items()}


def _by_member(named: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    members: dict[str, dict[str, Any]] = {}
    for words, text in named.items():
        member, _, name = words.partition(" ")
        members.setdefault(member, {})[name] = decode(text.encode())
    return members


def _text(value: Any) -> str:
    return encode(to_exact(value)).decode()


def _the_same(subject: str, name: str, told: list[dict[str, Any]]) -> Any:
    """Return what all ranks that know a name say of it."""
    by_rank = {rank: named[name] for rank, named in enumerate(told) if name in named}
    first = min(by_rank)
    for rank, found in by_rank.items():
        if found != by_rank[first]:
            raise SaveError(
                f"{subject}: {name!r} is {found} on rank {rank} and {by_rank[first]} on rank {first}; must be the same"
            )
    return by_rank[first]


def _holders(name: str, told: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return which ranks hold which boxes of a tensor."""
    holders: dict[str, list[int]] = {}
    for rank, named in enumerate(told):
        if name in named:
            holders.setdefault(json.dumps(named[name][1]), []).append(rank)
    return holders


def _buffers_to_keep_apart(told: list[dict[str, Any]]) -> list[str]:
    first: dict[tuple[str, str], tuple[int, int]] = {}
    differing = set()
    for rank, named in enumerate(told):
        for name, (members, checksum, is_buffer) in named.items():
            other, expected = first.setdefault((name, members), (rank, checksum))
            if checksum == expected:
                continue
            if not is_buffer:
                raise ReplicaMismatch(
                    f"{name!r} differs between rank {other} (crc32 {expected:08x}) and rank {rank} (crc32 {checksum:08x}), "
                    f"which should hold equal copies; are gradients averaged (DDP, an all-reduce)? Else load a step from before"
                )
            differing.add(name)
    if not differing:
        raise _unstable("replicas")
    return sorted(differing)


def _unstable(subject: str) -> SaveError:
    return SaveError(f"{subject}: the ranks differed and then did not; something changes them while they are saved")


def _differing_sets(proposals: list[dict[str, Any]]) -> bool:
    seen: dict[str, int] = {}
    return any(seen.setdefault(name, crc) != crc for p in proposals for name, crc in p["replicas"].items())


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _descriptions(plan: SavePlan) -> dict[str, Any]:
    return {f"{section} {name}": _spec(spec) for section, named in plan.specs.items() for name, spec in named.items()}


def _own(plan: SavePlan) -> Iterable[tuple[str, LocalTensor]]:
    for section, named in plan.tensors.items():
        yield from ((f"{section} {name}", local) for name, local in named.items())


def _spec(spec: TensorSpec) -> list[Any]:
    return [spec.dtype, list(spec.shape)]


PLAIN_SUBJECTS: dict[str, Callable[[SavePlan, Contents], dict[str, Any]]] = {
    "step": lambda plan, contents: {
        "step": str(plan.step),
        "max_file_bytes": str(plan.max_file_bytes),
        "files": json.dumps(plan.files),
    },
    "tensors": lambda plan, contents: _descriptions(plan),
    "aliases": lambda plan, contents: dict(plan.aliases),
    "by_name": lambda plan, contents: _of_named(plan, contents),
    "state": lambda plan, contents: {k: _text(v) for k, v in plan.state.items() if k not in contents.by_name},
}


def _replicated(tensors: Tensors) -> Iterable[tuple[str, LocalTensor]]:
    for named in tensors.values():
        yield from ((name, local) for name, local in named.items() if len(local.replicas) > 1)


def _set_name(replicas: tuple[int, ...]) -> str:
    return ",".join(map(str, replicas))


def _replica_sums(tensors: Tensors) -> dict[str, int]:
    sums: dict[tuple[int, ...], int] = {}
    for _, local in _replicated(tensors):
        sums[local.replicas] = _sum(local, sums.get(local.replicas, 0))
    return {_set_name(members): crc for members, crc in sums.items()}  # a name is as long as the world is large


def _sum(local: LocalTensor, crc: int = 0) -> int:
    data = TensorBytes(local.data)
    for begin in range(0, data.num_bytes, BLOCK_BYTES):
        crc = isal_zlib.crc32(data.read(begin, min(begin + BLOCK_BYTES, data.num_bytes)), crc)
    return crc
