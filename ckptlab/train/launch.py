"""Start the reference job on this machine, on torch's elastic agent: for `ckptlab train` and the demo. Torch is not loaded."""

from collections.abc import Callable

from ckptlab.errors import RankRaised, UsageError
from ckptlab.ranks import Failure, run_job
from ckptlab.train.options import Options
from ckptlab.train.text import read_text


def launch(job: Options, *, ranks: int, max_restarts: int, say: Callable[[str], object]) -> list[Failure]:
    """Run the job to its end, starting all ranks again when one is lost; return which were, and tell of each by `say`.

    Raises:
        UsageError: the options do not fit together, or not with the ranks or the text; no rank was started.
        RankRaised: a rank raised. It would raise again, so there is no restart.
        RankLost: more ranks were lost, one after the other, than there are restarts.
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

    run_job("ckptlab.train.job:train", (job,), num_ranks=ranks, max_restarts=max_restarts, on_failure=on_failure)
    return failures
