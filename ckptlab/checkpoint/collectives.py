"""The only place of the checkpointer that communicates: the ranks of a run agree with the coordinator, rank 0.

Messages go point to point on a gloo group of the checkpointer's own, as JSON. A collective that breaks cannot name the rank
that is gone; a receive from one rank can, within milliseconds of its death. Two rules keep every rank in step on every path:
what goes wrong on a rank travels as a value (`Outcome`), and the coordinator answers every rank, also when it failed itself.

`Group.of_world`, `attempt`, `Group.agree` or `Group.from_coordinator`, `Group.close`, in the order in which they act.
"""

import atexit
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ckptlab.errors import CkptlabError

COORDINATOR = 0
TIMEOUT = timedelta(minutes=10)
logger = logging.getLogger("ckptlab")


def rank_and_world_size() -> tuple[int, int]:
    """Return this process's rank and the world size; `(0, 1)` where torch.distributed is not initialised."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def leave_world_at_exit() -> None:
    """See to it that this process, which is about to end, leaves torch.distributed: else gloo's threads may abort it."""
    atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a piece of work on one rank: a value that JSON can carry, or the exception that it raised."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """Return the value, or raise the exception."""
        if self.error is not None:
            raise self.error
        return self.value

    def then(self, work: Callable[[], Any]) -> "Outcome":
        """Do more work, unless this has failed already."""
        return attempt(work) if self.error is None else self

    def to_json(self) -> dict[str, Any]:
        """Return the message to the coordinator."""
        if self.error is None:
            return {"value": self.value}
        known = isinstance(self.error, CkptlabError)
        return {
            "kind": type(self.error).__name__ if known else None,
            "error": str(self.error) if known else f"{type(self.error).__name__}: {self.error}",
        }


def attempt(work: Callable[[], Any]) -> Outcome:
    """Do `work` and return its outcome; an exception must not keep this rank from the next exchange."""
    try:
        return Outcome(value=work())
    except Exception as error:  # every kind: whatever stops one rank has to stop all of them
        return Outcome(error=error)


def attempt_or_warn(what: str, work: Callable[[], Any]) -> None:
    """Do `work` on which nothing else depends; if it fails, log a warning that `what` happened, and why."""
    outcome = attempt(work)
    if outcome.error is not None:
        logger.warning("%s: %s", what, outcome.error)


class RanksDisagree(Exception):
    """Some rank failed or is lost; every rank that is left raises this with the same words.

    Attributes:
        kind: the class name of the first failing rank's error when it is one of ckptlab's, else None.
        lost: the ranks that did not answer.
    """

    def __init__(self, message: str, *, kind: str | None = None, lost: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.lost = lost


class Group:
    """The ranks of a run, on a gloo group that nobody else uses.

    Every rank makes it together, calls `agree` equally often, and closes it together. Not for two threads at once. It holds the
    group itself, not its name in torch's register: a save in the background ends well when the script has left the world.
    """

    def __init__(self, rank: int, world_size: int, process_group: Any, timeout: timedelta) -> None:
        self.rank = rank
        self.world_size = world_size
        self.is_coordinator = rank == COORDINATOR
        self._process_group = process_group
        self._timeout = timeout

    @classmethod
    def of_world(cls, timeout: timedelta = TIMEOUT) -> "Group":
        """Return the group of all ranks; a world that is not initialised is a world of one. Every rank calls this.

        Raises:
            RanksDisagree: not all ranks came.
        """
        rank, world_size = rank_and_world_size()
        started = int(os.environ.get("WORLD_SIZE", 1))
        if world_size < started and not dist.is_initialized():
            raise RanksDisagree(
                f"WORLD_SIZE is {started}, but torch.distributed is not initialised: every rank takes itself for the only one; "
                f"call ckptlab.ranks.init_from_environment() first"
            )
        try:
            process_group = dist.new_group(backend="gloo", timeout=timeout) if world_size > 1 else None
        except RuntimeError as error:
            raise RanksDisagree(
                f"rank {rank} did not meet all others: a rank died, or did not come in time ({error})"
            ) from error
        return cls(rank, world_size, process_group, timeout)

    @classmethod
    @contextmanager
    def lent(cls, group: "Group | None") -> Iterator["Group"]:
        """Use `group`, or one of all ranks for the time being. Every rank calls this."""
        own = group or cls.of_world()
        try:
            yield own
        finally:
            if group is None:
                own.close()

    def close(self) -> None:
        """Give the group back. Every rank calls this."""
        if self._process_group is not None and dist.is_initialized():
            dist.destroy_process_group(self._process_group)
        self._process_group = None

    def agree(self, outcome: Outcome, decide: Callable[[list[Any]], Any] = lambda values: None) -> Any:
        """Give this rank's outcome and return what the coordinator decided from everybody's. Every rank calls this.

        Args:
            outcome: the result of this rank's work.
            decide: from the values by rank to an answer that JSON can carry; called on the coordinator, and only if all
                ranks succeeded. What it raises is the coordinator's failure.

        Raises:
            RanksDisagree: on every rank alike, when any rank failed, is lost, or `decide` raised.
        """
        if not self.is_coordinator:
            self._send(COORDINATOR, outcome.to_json())
            return _unpack(self._receive(COORDINATOR), outcome)
        answer = _answer(self._gather(outcome.to_json()), decide)
        self._answer_all(answer)
        return _unpack(answer, outcome)

    def from_coordinator(self, work: Callable[[], Any]) -> Any:
        """Do `work` on the coordinator alone, and return its value, which JSON can carry, on every rank. Every rank calls this.

        Raises:
            RanksDisagree: on every rank alike, when the coordinator failed; on the others also when it is lost.
        """
        if not self.is_coordinator:
            return _unpack(self._receive(COORDINATOR), Outcome())
        outcome = attempt(work)
        answer = _answer([outcome.to_json()], lambda values: values[0])
        self._answer_all(answer)
        return _unpack(answer, outcome)

    def swap(self, send: tuple[int, memoryview] | None, receive: tuple[int, memoryview] | None) -> tuple[int, ...]:
        """Send bytes to a rank while bytes come from a rank; return those of the two that are lost. Nobody else takes part.

        The two at the ends of a message know its length beforehand, and make their swaps in an order that all ranks know:
        see `ckptlab.tiers.moves`. A lost rank is no error here, because a rank that stopped would keep others waiting.

        Args:
            send: to whom, and what: writable memory.
            receive: from whom, and where to: as many bytes as the other sends.
        """
        group, begun = self._process_group, []
        if receive is not None and receive[1].nbytes:  # first a place for what comes: two that sent would wait for each other
            begun.append((receive[0], _begin(group.recv, *receive)))
        if send is not None and send[1].nbytes:
            begun.append((send[0], _begin(group.send, *send)))
        ended = [(rank, _wait(work)) for rank, work in begun]
        return tuple(rank for rank, outcome in ended if outcome.error is not None)

    def begin_largest(self, numbers: Sequence[int]) -> Callable[[], list[int]]:
        """Begin to find the largest of each number over all ranks; return what waits for it. Every rank calls this.

        It returns at once. Any number may be on their way, but nothing else on this group. What waits raises `RanksDisagree`
        when a rank is lost; which one, a collective cannot tell.
        """
        largest = torch.tensor(numbers, dtype=torch.int64)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX  # type: ignore[assignment]  # torch's types have another class there

        def begin() -> Any:
            return None if self._process_group is None else self._process_group.allreduce([largest], options)

        begun = attempt(begin)

        def wait() -> list[int]:
            ended = begun.then(lambda: begun.value and begun.value.wait())
            if ended.error is not None:
                raise RanksDisagree(f"a rank died, or did not answer in time ({ended.error})") from ended.error
            return largest.tolist()

        return wait

    def _gather(self, own: dict[str, Any]) -> list[dict[str, Any] | None]:
        """Return the messages by rank, None for a rank that is lost. Coordinator only."""
        messages: list[dict[str, Any] | None] = [own]
        for rank in range(1, self.world_size):
            start = time.monotonic()
            try:
                messages.append(self._receive(rank))
            except RanksDisagree:
                messages.append(None)
                if time.monotonic() - start >= self._timeout.total_seconds():
                    break  # gloo closes every pair of a group that timed out: the ranks after this one are not to blame
        return messages

    def _answer_all(self, answer: dict[str, Any]) -> None:
        """Send `answer` to every other rank. Coordinator only. A rank that died since it spoke will be missed the next time."""
        for rank in range(1, self.world_size):
            with suppress(RanksDisagree):
                self._send(rank, answer)

    def _send(self, rank: int, message: dict[str, Any]) -> None:
        data = torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
        try:
            self._process_group.send([torch.tensor([data.numel()])], rank, 0).wait()
            self._process_group.send([data], rank, 0).wait()
        except RuntimeError as error:
            raise RanksDisagree(_lost((rank,)), lost=(rank,)) from error

    def _receive(self, rank: int) -> dict[str, Any]:
        length = torch.zeros(1, dtype=torch.int64)
        try:
            self._process_group.recv([length], rank, 0).wait()
            data = torch.empty(int(length), dtype=torch.uint8)
            self._process_group.recv([data], rank, 0).wait()
        except RuntimeError as error:
            raise RanksDisagree(_lost((rank,)), lost=(rank,)) from error
        message: dict[str, Any] = json.loads(data.numpy().tobytes())
        return message


def _begin(start: Callable[..., Any], rank: int, data: memoryview) -> Outcome:
    return attempt(lambda: start([torch.frombuffer(data, dtype=torch.uint8)], rank, 0))


def _wait(begun: Outcome) -> Outcome:
    return begun.then(lambda: begun.value.wait())


def _answer(messages: list[dict[str, Any] | None], decide: Callable[[list[Any]], Any]) -> dict[str, Any]:
    """Return the coordinator's answer to the messages of all ranks: the first failure, the lost ranks, or a decision."""
    lost = [rank for rank, message in enumerate(messages) if message is None]
    failed = [(rank, message) for rank, message in enumerate(messages) if message is not None and "error" in message]
    if failed:
        rank, message = failed[0]
        others = f" (also failed: {len(failed) - 1} of the other ranks)" if len(failed) > 1 else ""
        return {"error": f"rank {rank}: {message['error']}{others}", "kind": message["kind"], "lost": lost}
    if lost:
        return {"error": _lost(tuple(lost)), "kind": None, "lost": lost}
    decision = attempt(lambda: decide([message["value"] for message in messages if message is not None]))
    return decision.to_json() | ({"lost": []} if decision.error is not None else {})


def _unpack(answer: dict[str, Any], outcome: Outcome) -> Any:
    if "error" in answer:
        raise RanksDisagree(answer["error"], kind=answer["kind"], lost=tuple(answer["lost"])) from outcome.error
    return answer["value"]


def _lost(ranks: tuple[int, ...]) -> str:
    named = ", ".join(map(str, ranks))
    return f"lost rank{'s' if len(ranks) > 1 else ''} {named}: died, or did not answer in time, now or before"
