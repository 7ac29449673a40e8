"""Blocks of a file in a store, fetched before they are used: one request after the other would mostly wait for answers."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ckptlab.format.manifest import Manifest
from ckptlab.format.strips import Strip
from ckptlab.storage import ObjectPath, store

BLOCKS = 4  # so many are on their way or wait to be used: 16 MiB


class Ahead:
    """Fetches the next blocks while one is used. Only what will be used is fetched."""

    def __init__(self, path: ObjectPath, manifest: Manifest) -> None:
        self._path, self._manifest = path, manifest
        self._pool = ThreadPoolExecutor(BLOCKS, thread_name_prefix="ckptlab fetch")
        self._coming: dict[int, Future[memoryview]] = {}

    def close(self) -> None:
        """Wait for what is on its way."""
        self._pool.shutdown(cancel_futures=True)

    def cuts(self, file: str, cuts: Iterable[Strip], held: int | None) -> Iterator[Strip]:
        """Give the cuts of a file, each in one block, in their order; block `held` need not be fetched.

        Whoever gets a cut of a block for the first time calls `take`.
        """
        self._coming.clear()
        waiting: deque[Strip] = deque()
        for cut in cuts:
            block = cut.begin // self._manifest.block_bytes
            if block != held:
                self._coming[block] = self._pool.submit(self._fetch, file, block)
                held = block
            waiting.append(cut)
            if len(waiting) == BLOCKS:
                yield waiting.popleft()
        yield from waiting

    def take(self, block: int, view: memoryview) -> None:
        """Fill the view with a block; raises what fetching it did."""
        view[:] = self._coming.pop(block).result()

    def _fetch(self, file: str, block: int) -> memoryview:
        begin = block * self._manifest.block_bytes
        view = memoryview(bytearray(min(self._manifest.block_bytes, self._manifest.files[file].num_bytes - begin)))
        store.read_into(self._path / file, begin, view)
        return view
