"""Pass files from node to node, block by block, each verified when it arrives. Two blocks of memory a rank, whatever the files.

What goes wrong on a rank does not end its part in the exchange, for which others wait: it is raised at the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import zip_longest
from pathlib import Path

from isal.isal_zlib import crc32

from ckptlab.checkpoint.collectives import Group, Outcome, attempt
from ckptlab.errors import CorruptError, StepError
from ckptlab.format.checksums import block_ranges
from ckptlab.format.records import FileRecord
from ckptlab.steps.verify import wrong_sum
from ckptlab.storage import posix
from ckptlab.tiers.moves import Move, turns


def pass_files(
    moves: Sequence[Move], folder: Path, records: Mapping[str, FileRecord], block_bytes: int, group: Group, durable: bool
) -> None:
    """Send and receive what is this rank's to send and receive. Every rank calls it, with the same moves.

    Args:
        moves: which file goes where.
        folder: the step's directory on this rank's node; what is in the place of a file that comes is removed.
        records: what the files are.
        block_bytes: the span of one sum.
        group: the ranks.
        durable: return only when what came is on the disk.

    Raises:
        StepError: a rank is lost with which this rank had files to pass.
        CorruptError: a block did not arrive as it was written.
        OSError: a file could not be read or written.
    """
    outcomes: list[Outcome] = []
    lost: set[int] = set()
    buffer = memoryview(bytearray(2 * block_bytes if moves else 0))
    for send, receive in turns(moves, group.rank):
        outgoing = _read(folder, send, records, buffer[:block_bytes], block_bytes, outcomes)
        incoming = _write(folder, receive, records, buffer[block_bytes:], block_bytes, durable, outcomes)
        for read, place in zip_longest(outgoing, incoming):
            to = None if send is None or read is None or send.target in lost else (send.target, read)
            of = None if receive is None or place is None or receive.source in lost else (receive.source, place)
            lost.update(group.swap(to, of))
    if lost:
        raise StepError(f"lost rank {', '.join(map(str, sorted(lost)))} while files were passed from node to node")
    for outcome in outcomes:
        outcome.get()


def _read(
    folder: Path,
    move: Move | None,
    records: Mapping[str, FileRecord],
    buffer: memoryview,
    block_bytes: int,
    outcomes: list[Outcome],
) -> Iterator[memoryview]:
    """Yield block after block; after an error what is in the buffer, which is found to be wrong where it arrives."""
    if move is None:
        return
    with ExitStack() as stack:
        opened = outcome = attempt(lambda: stack.enter_context(posix.open_to_read(folder / move.file)))
        for begin, end in block_ranges(records[move.file].num_bytes, block_bytes):
            view = buffer[: end - begin]
            outcome = outcome.then(partial(posix.read_into, opened.value, begin, view))
            yield view
        outcomes.append(outcome.then(stack.close))


def _write(
    folder: Path,
    move: Move | None,
    records: Mapping[str, FileRecord],
    buffer: memoryview,
    block_bytes: int,
    durable: bool,
    outcomes: list[Outcome],
) -> Iterator[memoryview]:
    """Yield the place for block after block; each is written when the next is asked for, and after an error none."""
    if move is None:
        return
    record, path = records[move.file], folder / move.file
    with ExitStack() as stack:
        opened = outcome = attempt(lambda: stack.enter_context(_made(path, record.num_bytes)))
        blocks = block_ranges(record.num_bytes, block_bytes)
        for (begin, end), expected in zip(blocks, record.crc32, strict=True):
            view = buffer[: end - begin]
            yield view
            outcome = outcome.then(partial(_take, opened.value, begin, view, expected, move))
        if durable:
            outcome = outcome.then(partial(posix.sync, opened.value))
        outcomes.append(outcome.then(stack.close))


def _made(path: Path, num_bytes: int) -> AbstractContextManager[posix.File]:
    posix.remove_file(path)
    posix.make_directory(path.parent)
    posix.reserve(path, num_bytes)
    return posix.open_to_write(path)


def _take(file: posix.File, begin: int, view: memoryview, expected: int, move: Move) -> None:
    if (found := crc32(view)) != expected:
        where = f"{move.file} bytes {begin}-{begin + len(view)}"
        raise CorruptError(f"{where}, as rank {move.source} sent it to rank {move.target}: {wrong_sum(found, expected)}")
    posix.write_at(file, begin, view)
