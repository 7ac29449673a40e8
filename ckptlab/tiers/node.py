"""Tiers on the nodes themselves: `Memory` (tmpfs) and `Local` (a node's own disk). One implementation under two names.

Each node has a folder in the tier's directory, by its name (`CKPTLAB_NODE`, or the host name). There lies of a step what the
node's ranks wrote, and with partners also what the ranks of another node did. So no shared storage is needed, and a save takes
as long as on the slowest node. What a step survives is said at each class.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ckptlab.errors import UsageError
from ckptlab.steps.events import WriteEvent
from ckptlab.storage import on_disk

if TYPE_CHECKING:  # torch comes with these; only who saves or loads needs it
    from ckptlab.checkpoint.collectives import Group
    from ckptlab.checkpoint.contents import Contents
    from ckptlab.checkpoint.load import Wanted
    from ckptlab.tiers.node_restore import NodeStep


@dataclass(frozen=True, slots=True)
class NodeTier:
    """Steps in the folders of the nodes; use `Memory` or `Local`.

    Attributes:
        directory: the same path on every node, for this run alone; made when it is not there.
        every: `save_if_due` saves at multiples of so many steps.
        keep_last: how many steps to keep; while one is saved there is one more.
        partner: whether each rank's files are copied to a rank of another node: then any one node may be lost. Where all ranks
            are on one node there is no copy.
    """

    directory: Path
    every: int = field(kw_only=True)
    keep_last: int = field(default=1, kw_only=True)
    partner: bool = field(default=False, kw_only=True)

    durable: ClassVar[bool]

    def __post_init__(self) -> None:
        if self.keep_last < 1 or self.every < 1:
            raise UsageError(f"keep_last={self.keep_last}, every={self.every}: each is at least 1")
        object.__setattr__(self, "directory", on_disk(self.directory))

    def is_due(self, step: int) -> bool:
        """Whether this step is to be saved here."""
        return step % self.every == 0

    def save(
        self,
        step: int,
        contents: "Contents",
        group: "Group",
        write_event: WriteEvent | None = None,
        on_phase: Callable[[str], None] | None = None,
    ) -> Path:
        """Save a step and return its directory on this rank's node. Every rank calls it, with the same `step`.

        All nodes have the step or none: a failure on one rank is every rank's, what was written of the step is removed, and the
        steps before stay. Older steps go when all nodes have the new one. Beyond the files it takes two blocks (8 MiB) a rank.

        Args:
            step: the number of optimizer steps done.
            contents: what to save; as for `ckptlab.checkpoint.save`.
            group: the ranks.
            write_event: called on the coordinator with the save's event; must not raise.
            on_phase: called on every rank after each of `PHASES`; must not raise.

        Raises:
            SaveError: on every rank that is left. `committed` is None when a rank was lost while the nodes committed.
            ReplicaMismatch: copies of a tensor that should be equal are not.
        """
        from ckptlab.tiers.node_save import save_on_nodes

        return save_on_nodes(
            self.directory,
            step,
            contents,
            group,
            partner=self.partner,
            durable=self.durable,
            keep_last=self.keep_last,
            write_event=write_event,
            on_phase=on_phase,
        )

    def steps(self, group: "Group") -> "list[NodeStep]":
        """Return the steps that nodes have anything of, newest first, each with what is wrong. Every rank calls it.

        One without a fault can be restored as far as files and their sizes tell; `prepare` reads the bytes.

        Raises:
            LoadError: a rank failed or is lost.
        """
        from ckptlab.tiers.node_restore import steps_on_nodes

        return steps_on_nodes(self.directory, group)

    def prepare(self, step: int, group: "Group", wanted: "Wanted | None" = None) -> Path:
        """Bring a step to every node, verified, and return its directory on this rank's node. Every rank calls it.

        Then `load(path, ..., need_whole=False)` reads it. Files that a node lacks, or has damaged, come from another node.

        Args:
            step: the step's number.
            group: the ranks, of any number and on any nodes.
            wanted: as for `load`: a node gets only what its ranks read then. None: every node gets all of the step.

        Raises:
            CorruptError: a file is good on no node; it is named. Take another step.
            LoadError: anything else, such as no space for what a node lacks; take another step or another tier.
        """
        from ckptlab.tiers.node_restore import prepare_on_nodes

        return prepare_on_nodes(self.directory, step, group, wanted, self.durable)

    def delete_later(self, step: int, group: "Group") -> None:
        """Delete all later steps, so that training can save them again. Every rank calls it, when all have loaded `step`.

        Where an older step is taken than nodes have, from here or from elsewhere, what they have beyond it is of a past that
        did not happen; memory is too small to keep it, as a run does on disk.

        Raises:
            LoadError: a node could not delete.
        """
        from ckptlab.tiers.node_restore import delete_later_on_nodes

        delete_later_on_nodes(self.directory, step, group)


@dataclass(frozen=True, slots=True)
class Memory(NodeTier):
    """Steps in the memory of the nodes, such as `Memory("/dev/shm/mine", every=20)`. Never fsynced.

    It survives the death of any process; with the partner that it has unless told otherwise, also the loss of one node. It does
    not survive that all nodes are switched off. It takes `keep_last` + 1 times the state, twice with a partner.
    """

    partner: bool = field(default=True, kw_only=True)

    durable: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Local(NodeTier):
    """Steps on the nodes' own disks, fsynced, such as `Local("/local/mine", every=200)`.

    It survives that all nodes are switched off; with `partner=True` also the loss of one.
    """

    keep_last: int = field(default=2, kw_only=True)

    durable: ClassVar[bool] = True
