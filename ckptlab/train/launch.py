"""Start the reference job on this machine, on torch's elastic agent: for `ckptlab train` and the demo. Torch is not loaded."""

from collections.abc import Callable

from ckptlab.errors import RankRaised
from ckptlab.ranks import Failure, run_job
from ckptlab.train.options import Options


def launch(job: Options, *, ranks: int, max_restarts: int, say: Callable[[str], object]) -> list[Failure]:
    """Run the job to its end, starting all ranks again when one is lost; return which were, and tell of each by `say`.

    Raises:
        RankRaised: a rank raised. It would raise again, so there is no restart.
        RankLost: more ranks were lost, one after the other, than there are restarts.
    """
    failures: list[Failure] = []

    def on_failure(failure: Failure) -> None:
        if failure.own_lines is not None:
            raise RankRaised(f"rank {failure.rank} {failure.how}\n\n{failure.own_lines}")
        failures.append(failure)
        say(str(failure))

    run_job("ckptlab.train.job:train", (job,), num_ranks=ranks, max_restarts=max_restarts, on_failure=on_failure)
    return failures
