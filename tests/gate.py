"""A file that keeps whoever opens it waiting: so that a save is still being written for as long as a test needs that."""

import threading
from pathlib import PosixPath


class Gate(PosixPath):
    """Cannot be opened before `is_open` is set; one gate a process. As a model's file it stops the coordinator's writing."""

    reached, is_open = threading.Event(), threading.Event()

    def __fspath__(self) -> str:
        self.reached.set()
        assert self.is_open.wait(60)
        return super().__fspath__()
