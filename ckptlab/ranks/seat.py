"""One rank of a `World` as its parent sees it: a process, a pipe to it, and a file with what it prints."""

import os
import signal
import time
from collections.abc import Sequence
from multiprocessing import Pipe, connection
from pathlib import Path

from ckptlab.ranks import forkserver, output
from ckptlab.ranks.answer import Answer

AFTER_A_DEATH_SECONDS = 1.0  # for the other ranks to tell what the death did to them
WATCH_SECONDS = 0.25  # between looks at how much was printed
MOST_PRINTED_BYTES = 20_000_000  # by one rank in one run; a rank that prints on and on would fill the disk


class Seat:
    """Starts a rank, gives it tasks one at a time, takes its answers, and knows how it ended."""

    def __init__(self, rank: int, world_size: int, folder: Path, timeout: float, device: str) -> None:
        self.rank = rank
        self.busy = True  # with meeting the others
        file = output.file_of(rank, folder)
        file.touch(0o600)
        self._output = file.open("rb")  # kept open: what a rank prints is there even if its code removes the file
        self._printed = 0
        self._is_flooding = False
        self.connection, theirs = Pipe()
        self.process = forkserver.start("ckptlab.ranks.rank:main", rank, world_size, folder, theirs, timeout, device)
        theirs.close()

    @property
    def pid(self) -> int:
        """The rank's process id, also when it is gone."""
        assert self.process.pid is not None, "it is started"
        return self.process.pid

    @property
    def death(self) -> str | None:
        """How the rank ended: "was killed by SIGKILL"; None while it lives."""
        exit_code = self.process.exitcode
        if self._is_flooding:
            return f"printed more than {MOST_PRINTED_BYTES // 1_000_000} MB in one run and was ended"
        return None if exit_code is None else forkserver.how_it_ended(exit_code)

    def send(self, task: bytes | memoryview) -> None:
        """Give the rank a task, pickled."""
        self.busy = True  # first: if an interrupt falls in between, the rank counts as one that does not answer
        self.connection.send_bytes(task)

    def receive(self) -> Answer | None:
        """Take the rank's answer, if there is one by now."""
        if not self.connection.poll():
            return None
        try:
            answer = self.connection.recv()
            assert isinstance(answer, Answer), "a rank sends answers only"
        except Exception:  # the rank is gone, or has written into the pipe by itself
            self.process.join(AFTER_A_DEATH_SECONDS)
            if self.process.is_alive():
                self.process.kill()
                self.process.join()
            return None
        self.busy = False
        return answer

    def signal(self, number: signal.Signals) -> None:
        """Send the rank a signal; after SIGKILL wait until it is gone."""
        if self.death is None:
            os.kill(self.pid, number)
        if number == signal.SIGKILL:
            self.process.join()

    def is_stopped(self) -> bool:
        """Tell whether a signal has stopped the rank, where the system has /proc."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        return stat.rpartition(b")")[2].split()[0] == b"T"  # the name before may be no text

    def new_output(self) -> str:
        """Return what the rank has printed since the last call, labelled."""
        text, self._printed = output.read_from(self._output, self._printed)
        return output.label(self.rank, text)

    def stop_flood(self) -> None:
        """End the rank if it has printed too much since the last `new_output`."""
        if os.fstat(self._output.fileno()).st_size - self._printed > MOST_PRINTED_BYTES:
            self.signal(signal.SIGKILL)
            self._is_flooding = True

    def close(self) -> None:
        """End the rank and let go of it."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()
        self._output.close()


def collect(seats: Sequence[Seat], seconds: float) -> dict[int, Answer]:
    """Wait for the ranks' answers; after a death the other ranks have one more second. A rank that is missing gave none."""
    answers: dict[int, Answer] = {}
    pending = list(seats)
    deadline = time.monotonic() + seconds
    while pending and (left := deadline - time.monotonic()) > 0:
        ends = [end for seat in pending for end in (seat.connection, seat.process.sentinel)]
        connection.wait(ends, min(left, WATCH_SECONDS))
        for seat in tuple(pending):
            answer = seat.receive()
            if answer is not None:
                answers[seat.rank] = answer
                pending.remove(seat)
            elif seat.death is not None:
                deadline = min(deadline, time.monotonic() + AFTER_A_DEATH_SECONDS)
                pending.remove(seat)
            else:
                seat.stop_flood()
    return answers
