"""`World`: real ranks for a notebook or a test, which run what they are given and can be killed, paused and started again."""

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import util
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import TracebackType
from typing import Self

from ckptlab.errors import UsageError, WorldError
from ckptlab.ranks import verdict
from ckptlab.ranks.answer import Answer
from ckptlab.ranks.seat import Seat, collect
from ckptlab.ranks.task import describe

START_SECONDS = 60.0
INTERRUPT_SECONDS = 1.0  # after an interrupt; then the world is restarted
LATE_SECONDS = 1.0  # beyond the timeout, for ranks to tell that their collective has timed out


class World:
    """`num_ranks` processes with torch.distributed initialised, each with variables that last from run to run.

    The process that has the world does not load torch. The ranks end with it, whatever ends it, and with `close()`.

    A rank that died, or has not answered a run, is lost: runs that it should take part in raise `RankLost` at once, runs on
    other ranks still work (`ranks=`). A rank that answers late after all is there again. `restart()` starts all of them afresh.

    Args:
        num_ranks: the world size.
        timeout: seconds that a run, and a collective in it, may take.
        device: "cpu"; "auto", which takes a GPU for each rank (NCCL) where there are enough; or "cuda", where ranks share GPUs
            over gloo if there are fewer.

    Raises:
        UsageError: there is no such world.
        WorldError: the ranks could not be started.
    """

    def __init__(self, num_ranks: int, *, timeout: float = 60.0, device: str = "cpu") -> None:
        if num_ranks < 1 or device not in ("cpu", "auto", "cuda"):
            raise UsageError(f"World({num_ranks}, device={device!r}): at least one rank, and device 'cpu', 'auto' or 'cuda'")
        self.num_ranks = num_ranks
        self.timeout = timeout
        self._device = device
        self._num_runs = 0
        self._seats: list[Seat] = []
        self._start()

    def run(
        self, what: str | Callable[..., object], *args: object, ranks: Iterable[int] | None = None, **kwargs: object
    ) -> list[object]:
        """Run source text or a function on all ranks, or on those given; print what they print, return what each gives.

        Source text runs in the rank's own namespace, with `rank`, `world_size`, `torch` and `dist` in it, and gives the value
        of a last expression, else None. A function is imported by the ranks, or else defined there by its source. Tensors come
        back as NumPy arrays (of a DTensor the local part), leaves that are neither JSON nor NumPy as their `repr`.

        Raises:
            RankRaised: the code raised on a rank; the first traceback is in the message.
            RankLost: a rank is dead (told at once) or did not answer in time.
            ValueError: ranks cannot run `what` (a closure, a lambda).
        """
        self._num_runs += 1
        task = ForkingPickler.dumps(describe(what, args, kwargs, name=f"<run {self._num_runs}>"))
        seats = self._choose(ranks)
        try:
            for seat in seats:
                seat.send(task)
            answers = collect(seats, self.timeout + LATE_SECONDS)
        except KeyboardInterrupt:
            self._interrupt(seats)
            raise
        self._print_output()
        _raise_unless_all_well(seats, answers, f"within {self.timeout:g} s")
        return [answers[seat.rank].value for seat in seats]

    def kill(self, rank: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a rank a signal, SIGKILL unless told otherwise."""
        self._seat(rank).signal(number)

    def pause(self, rank: int) -> None:
        """Stop a rank where it is, as if its machine hung; `kill(rank, signal.SIGCONT)` lets it go on."""
        self.kill(rank, signal.SIGSTOP)

    def is_idle(self, rank: int) -> bool:
        """Whether the rank would begin with a run at once: it lives, is not stopped, and has answered its last run."""
        seat = self._seats[rank] if self._seats else None
        return seat is not None and not seat.busy and seat.death is None and not seat.is_stopped()

    def restart(self) -> None:
        """End all ranks and start them afresh."""
        self.close()
        self._start()

    def close(self) -> None:
        """End all ranks. A closed world can be started again with `restart()`."""
        self._end()
        self._seats = []

    @property
    def pids(self) -> list[int]:
        """The ranks' process ids, by rank."""
        return [seat.pid for seat in self._seats]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="ckptlab-world-"))
        self._seats = []
        self._end = util.Finalize(self, _end, args=(self._seats, folder), exitpriority=10)
        try:
            for rank in range(self.num_ranks):
                self._seats.append(Seat(rank, self.num_ranks, folder, self.timeout, self._device))
            answers = collect(self._seats, START_SECONDS)
            self._print_output()
            _raise_unless_all_well(self._seats, answers, f"within {START_SECONDS:g} s of its start")
        except BaseException:
            self.close()
            raise

    def _seat(self, rank: int) -> Seat:
        if not self._seats:
            raise WorldError("this world is closed; world.restart() starts it again")
        if not 0 <= rank < self.num_ranks:
            raise UsageError(f"rank {rank} is not in this world of {self.num_ranks}")
        return self._seats[rank]

    def _choose(self, ranks: Iterable[int] | None) -> list[Seat]:
        seats = [self._seat(rank) for rank in (range(self.num_ranks) if ranks is None else dict.fromkeys(ranks))]
        for seat in seats:
            if seat.busy:
                seat.receive()  # an answer that came too late for its run
        _raise_unless_all_well([seat for seat in seats if seat.busy or seat.death], {}, "an earlier run")
        return seats

    def _interrupt(self, seats: Sequence[Seat]) -> None:
        busy = [seat for seat in seats if seat.busy]
        for seat in busy:
            seat.signal(signal.SIGINT)
        collect(busy, INTERRUPT_SECONDS)
        self._print_output()
        stuck = [seat.rank for seat in busy if seat.busy]
        if stuck:
            self.restart()
            print(f"{verdict.name_ranks(stuck)} did not stop, so that all ranks were started afresh; their variables are lost")

    def _print_output(self) -> None:
        for seat in self._seats:
            print(seat.new_output(), end="")


def _raise_unless_all_well(seats: Sequence[Seat], answers: dict[int, Answer], waited: str) -> None:
    raised = {rank: answer.raised for rank, answer in answers.items() if answer.raised is not None}
    died = {seat.rank: death for seat in seats if seat.rank not in answers and (death := seat.death)}
    silent = {seat.rank: seat.is_stopped() for seat in seats if seat.rank not in answers and seat.rank not in died}
    if died or silent:
        raise verdict.rank_lost(died, silent, raised, waited)
    if raised:
        raise verdict.rank_raised(raised, len(seats))


def _end(seats: Sequence[Seat], folder: Path) -> None:
    for seat in seats:
        seat.process.kill()
    for seat in seats:
        seat.close()
    shutil.rmtree(folder, ignore_errors=True)
