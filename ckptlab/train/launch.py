"""Start the reference job on this machine, on torch's elastic agent: for `ckptlab train` and the demo. Torch is not loaded."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType

from ckptlab.errors import RankRaised, UsageError
from ckptlab.ranks import Failure, run_job
from ckptlab.train.options import Options
from ckptlab.train.text import read_text


def launch(job: Options, *, ranks: int, max_restarts: int, say: Callable[[str], object]) -> list[Failure]:
    """Run the job to its end, starting all ranks again when one is lost; return which were, and tell of each by `say`.

    With `job.grace_seconds` a SIGTERM to this process, in its main thread, is one to all ranks.

    Raises:
        UsageError: the options do not fit together, or not with the ranks or the text; no rank was started.
        RankRaised: a rank raised. It would raise again, so there is no restart.
        RankLost: more ranks were lost, one after the other, than there are restarts.
        SystemExit: this process got SIGTERM, and all ranks have ended.
    """
    job.check(ranks)
    text = read_text(job.text)
    if job.global_batch > text.num_samples:
        raise UsageError(
            f"--global-batch {job.global_batch}: {text.folder} holds {text.num_samples} samples; give a folder with more text"
        )
    failures: list[Failure] = []

    def on_failure(failure: Failure) -> None:
        if failure.own_lines is not None:
            raise RankRaised(f"rank {failure.rank} {failure.how}\n\n{failure.own_lines}")
        failures.append(failure)
        say(str(failure))

    with nullcontext() if job.grace_seconds is None else _ended_by_sigterm():
        run_job(
            "ckptlab.train.job:train",
            (job,),
            num_ranks=ranks,
            max_restarts=max_restarts,
            on_failure=on_failure,
            grace_seconds=job.grace_seconds,
        )
    return failures


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise `SystemExit`, once: `run_job` hands it on to the ranks, and waits for their end."""

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)  # as a shell has it

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
