"""Which node this rank is on, and the node's folder in a tier."""

import logging
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from ckptlab.checkpoint.collectives import Group, attempt
from ckptlab.errors import UsageError
from ckptlab.steps.run_id import claim
from ckptlab.tiers.moves import Nodes

NODE = "CKPTLAB_NODE"
logger = logging.getLogger("ckptlab")


def node_name() -> str:
    """Return what this rank's node is called: by the environment's `CKPTLAB_NODE`, or else by its host name."""
    name = os.environ.get(NODE) or socket.gethostname()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise UsageError(f"the node is called {name!r}: expected letters, digits, '.', '_' and '-'; set {NODE}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Where this rank is among the nodes.

    Attributes:
        nodes: which ranks are on which node.
        folder: of this rank's node, where its steps are; it has the name of the node, so that a directory which nodes share
            by mistake, or two that are played on one machine, are kept apart.
        is_leader: whether this is the first rank of its node.
    """

    nodes: Nodes
    folder: Path
    is_leader: bool

    @classmethod
    def of(cls, directory: Path, group: Group) -> "Here":
        """Ask all ranks for their nodes. Every rank calls it.

        Raises:
            RanksDisagree: a node has a name that no folder can have, or a rank is lost.
        """
        nodes = Nodes.of(group.agree(attempt(node_name), list))
        return cls(nodes=nodes, folder=directory / nodes.by_rank[group.rank], is_leader=group.rank in nodes.leaders)


def claim_on_nodes(directory: Path, run_id: str, group: Group, partner: bool) -> None:
    """Make every node's folder this run's own. Every rank calls it.

    Raises:
        RanksDisagree: a node has steps of another run there, or the folder is another user's.
    """
    here = Here.of(directory, group)
    group.agree(attempt(lambda: claim(here.folder, run_id) if here.is_leader else None))
    if partner and len(here.nodes.leaders) == 1 and group.is_coordinator:
        logger.warning(
            "%s: all ranks are on one node, %s; there is no other one for a copy of its steps", directory, here.folder.name
        )
