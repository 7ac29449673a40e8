"""Which file goes from which rank to which: pure. Every rank derives the same list from what all have told.

A *node* is what is lost together: the ranks that share a memory and a disk. Its *leader* is its first rank.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ckptlab.errors import CorruptError


class Move(NamedTuple):
    """A file of a step that `source` has, and that goes into the folder of the node of `target`."""

    file: str
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Nodes:
    """The ranks by node, in the order of their first ranks."""

    by_rank: tuple[str, ...]
    ranks: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, names: Sequence[str]) -> "Nodes":
        """Take the name of each rank's node, by rank."""
        ranks: dict[str, tuple[int, ...]] = {}
        for rank, name in enumerate(names):
            ranks[name] = (*ranks.get(name, ()), rank)
        return cls(tuple(names), ranks)

    @property
    def leaders(self) -> list[int]:
        """The first rank of each node."""
        return [ranks[0] for ranks in self.ranks.values()]

    def partners(self) -> dict[int, int]:
        """Map each rank to one of the next node, the last node's to the first; empty where there is only one node.

        >>> Nodes.of(["a", "a", "b", "b"]).partners()
        {0: 2, 1: 3, 2: 0, 3: 1}
        """
        nodes = list(self.ranks.values())
        pairs = zip(nodes, nodes[1:] + nodes[:1], strict=True) if len(nodes) > 1 else ()
        return {rank: theirs[at % len(theirs)] for own, theirs in pairs for at, rank in enumerate(own)}


def copies(nodes: Nodes, files: Sequence[Sequence[str]], everywhere: str, partner: bool) -> list[Move]:
    """Return what moves in a save.

    Args:
        nodes: the nodes.
        files: by rank, what it wrote.
        everywhere: a file of rank 0 that each node gets.
        partner: whether the rest goes to a partner.
    """
    partners = nodes.partners() if partner else {}
    moves = [Move(file, rank, to) for rank, to in partners.items() for file in files[rank] if file != everywhere]
    return moves + [Move(everywhere, 0, leader) for leader in nodes.leaders if leader != 0]


def missing(nodes: Nodes, needed: Sequence[Sequence[str]], good: Sequence[Sequence[str]], bad: Mapping[str, str]) -> list[Move]:
    """Return what moves so that each node has what its ranks need.

    Args:
        nodes: the nodes.
        needed: by rank, the files that it needs on its node.
        good: by rank, the files of its node that it has found to be as they were written; each file by one rank a node.
        bad: what was found to be wrong, by file.

    Raises:
        CorruptError: a file is good on no node.
    """
    holders: dict[str, list[int]] = {}
    for rank, files in enumerate(good):
        for file in files:
            holders.setdefault(file, []).append(rank)
    moves = []
    for ranks in nodes.ranks.values():
        has = {file for rank in ranks for file in good[rank]}
        for number, file in enumerate(sorted({file for rank in ranks for file in needed[rank]} - has)):
            if file not in holders:
                raise CorruptError(bad.get(file, f"{file} is on none of the nodes {', '.join(nodes.ranks)}"))
            moves.append(Move(file, holders[file][number % len(holders[file])], ranks[number % len(ranks)]))
    return moves


def turns(moves: Sequence[Move], rank: int) -> Iterator[tuple[Move | None, Move | None]]:
    """Yield what a rank sends and receives at the same time, turn by turn.

    In a turn a rank sends at most one file and receives at most one. Ranks need not be in the same turn: the one that is the
    farthest behind never waits for another, so nobody waits for ever.

    >>> moves = [Move("a", 0, 1), Move("b", 1, 0), Move("c", 0, 2)]
    >>> [(send and send.file, receive and receive.file) for send, receive in turns(moves, 0)]
    [('a', 'b'), ('c', None)]
    """
    sending: dict[int, int] = {}
    receiving: dict[int, int] = {}
    own: dict[int, tuple[Move | None, Move | None]] = {}
    for move in moves:
        turn = max(sending.get(move.source, 0), receiving.get(move.target, 0))
        sending[move.source] = receiving[move.target] = turn + 1
        send, receive = own.get(turn, (None, None))
        own[turn] = (move if move.source == rank else send, move if move.target == rank else receive)
        if own[turn] == (None, None):
            del own[turn]
    yield from (own[turn] for turn in sorted(own))
