"""Put a committed step of a run on disk into an object store. No torch; one process at a time pushes to an address.

1. refuse    another step of this number is committed there; this one, made small or as it was before that, may be. What it is
             stored against is pushed before it
2. send      each file that is not there with its size and sum; every block is verified as it is read from the disk. What is
             there is not believed when a step of this number was set aside: it may be why
3. check     the store has all files, each with its size and sum
4. clear     delete what else is there: files of another step of this number, whose push was broken off
5. commit    put the manifest, if none is there: from now on the step exists

Killed anywhere before the last, it leaves no step; the next push sends what is missing. Parts of a file that was under way
then stay in the store, unseen and paid for: give the bucket a rule that aborts incomplete uploads after a day. Two that push
other steps of one number at once would write over each other's files: the sums tell, but a step is lost.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from ckptlab.errors import StepError, StoreError, UsageError
from ckptlab.format.checksums import file_sum
from ckptlab.format.manifest import MAX_MANIFEST_BYTES, Manifest
from ckptlab.format.names import MANIFEST, PINNED, aside_name, parse_step, step_name
from ckptlab.format.strips import Strip
from ckptlab.steps.steps import Step, find_step, read_step
from ckptlab.steps.verified import StepReader
from ckptlab.storage import ObjectPath, Place, place, store
from ckptlab.storage.object_path import Head

T = TypeVar("T")
FILES_AT_ONCE = 4  # each takes at most its block and the parts under way: some 30 MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """A step that stands in a store now; `sent` are the files that were not there before, with their bytes."""

    step: int
    path: ObjectPath
    sent: dict[str, int]


def push(step: str | Place, run: str | ObjectPath, progress: Callable[[int], None] | None = None) -> Pushed:
    """Put the step at a path on disk into the run at an address, under the same name; before it what it is stored against.

    Args:
        step: the directory of a committed step; it must stay while it is sent.
        run: like "s3://bucket/runs/mine".
        progress: gets the number of bytes that were verified and handed on, or were there; from several threads. What it raises
            breaks the push off.

    Raises:
        StepError: the step is not whole, or another step of this number is committed there.
        CorruptError: a block on the disk is not as it was written; names file, block and tensors. The step is not committed.
        StoreError: the store does not answer, refuses, or lost what it took. If it is not known whether the step was
            committed, pushing again tells.
    """
    source, target = find_step(place(step)), place(run)
    if not isinstance(target, ObjectPath) or isinstance(source.path, ObjectPath):
        raise UsageError(f"{source.path} to {target}: a step on disk is pushed to an address like s3://bucket/runs/mine")
    manifest, there = _whole(source), target / source.path.name
    document = store.read_file(source.path / MANIFEST, MAX_MANIFEST_BYTES)
    if _is_there_in_another_form(there, manifest):
        return Pushed(step=manifest.step, path=there, sent={})
    is_committed = _is_committed(there, document)
    if manifest.base is not None and not read_step(target / step_name(manifest.base)).whole:  # in whatever form
        push(source.path.parent / step_name(manifest.base), target)
    unsent = list(manifest.files) if not is_committed and _was_set_aside(there) else _unsent(there, manifest)
    progress = progress or (lambda num_bytes: None)
    progress(sum(record.num_bytes for name, record in manifest.files.items() if name not in unsent))
    _send(source.path, manifest, there, unsent, progress)
    if unsent and (lost := _unsent(there, manifest)):
        raise StoreError(
            f"{there} is not committed: the store took {', '.join(lost[:3])} and has not got it as sent; push again"
        )
    if is_committed:
        return Pushed(step=manifest.step, path=there, sent={name: manifest.files[name].num_bytes for name in unsent})
    _clear(there, manifest)
    if not there.store.create((there / MANIFEST).key, document) and not _is_committed(there, document):
        raise StoreError(f"{there} is not committed: its {MANIFEST} was there and is gone; push again")
    return Pushed(step=manifest.step, path=there, sent={name: manifest.files[name].num_bytes for name in unsent})


def _whole(step: Step) -> Manifest:
    if step.manifest is None or not step.whole:
        raise StepError(f"{step.path} is not whole ({step.fault}); only whole steps are pushed")
    return step.manifest


def _is_there_in_another_form(there: ObjectPath, manifest: Manifest) -> bool:
    """Whether the step is committed in the store as it was before it was made small, or made small otherwise."""
    if store.size_of(there / MANIFEST) is None:
        return False
    theirs = Manifest.parse(store.read_file(there / MANIFEST, MAX_MANIFEST_BYTES))
    return theirs != manifest and theirs.original == manifest.original


def _is_committed(there: ObjectPath, document: bytes) -> bool:
    """Whether this very step is committed in the store; refuse another one."""
    if store.size_of(there / MANIFEST) is None:
        return False
    if store.read_file(there / MANIFEST, MAX_MANIFEST_BYTES) != document:
        raise StepError(f"{there} is another step of this number, and is never overwritten; push to another address")
    return True


def _was_set_aside(there: ObjectPath) -> bool:
    number = parse_step(there.name)
    assert number is not None, "it has the name of the step on disk"
    return any(name.startswith(aside_name("bad", number, "")) for name in store.list_names(there.parent))


def _unsent(there: ObjectPath, manifest: Manifest) -> list[str]:
    """List the files that the store does not have with their size and sum; each is asked for, because a listing may be late."""

    def has(name: str) -> bool:
        return there.store.head((there / name).key) == _head(manifest, name)

    is_there = _some_at_once(has, list(manifest.files), [])
    return [name for name in manifest.files if not is_there[name]]


def _head(manifest: Manifest, name: str) -> Head:
    record = manifest.files[name]
    return Head(record.num_bytes, file_sum(record.crc32, record.num_bytes, manifest.block_bytes))


def _send(source: Place, manifest: Manifest, there: ObjectPath, names: list[str], progress: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def send(name: str) -> None:
        there.store.put((there / name).key, _blocks(source, manifest, name, progress, errors), _head(manifest, name))

    _some_at_once(send, names, errors)


def _clear(there: ObjectPath, manifest: Manifest) -> None:
    left = there.store.sizes(there.key).keys() - manifest.files.keys() - {MANIFEST, PINNED}
    there.store.delete([(there / name).key for name in sorted(left)])


def _some_at_once(work: Callable[[str], T], names: Sequence[str], errors: list[BaseException]) -> dict[str, T]:
    """Do `work` for each name; the first error ends all and is raised. Not in a pool, for which the end of a program waits."""
    left: SimpleQueue[str] = SimpleQueue()
    done: dict[str, T] = {}

    def take() -> None:
        while not errors:
            try:
                name = left.get_nowait()
                done[name] = work(name)
            except Empty:
                return
            except BaseException as error:
                errors.append(error)

    for name in names:
        left.put(name)
    threads = [Thread(target=take, name="ckptlab push") for _ in names[:FILES_AT_ONCE]]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException as error:  # of this thread: an interrupt
        errors.insert(0, error)
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if errors:
        raise errors[0]
    return done


def _blocks(
    source: Place, manifest: Manifest, name: str, progress: Callable[[int], None], errors: Sequence[BaseException]
) -> Iterator[bytes]:
    """Read a file block by block, each verified; an error in here takes back what the store has of the file."""
    with StepReader(source, manifest) as reader:
        for _, part in reader.read(name, Strip(0, 0, manifest.files[name].num_bytes)):
            if errors:
                raise StoreError(f"{name} was not sent: the push was broken off")
            yield part.tobytes()
            progress(part.nbytes)
