"""Jobs for test_restart.py and test_orphans.py. Run as a script, under torchrun, it is `main`."""

import multiprocessing
import os
import signal
import sys
from pathlib import Path


def main(out: str) -> None:
    """Rank 2 dies in the first attempt; in the next, each rank leaves the sum that all came to."""
    import torch
    import torch.distributed as dist

    from ckptlab.ranks import init_from_environment

    init_from_environment()
    attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], dist.get_rank()
    total = torch.ones(1)
    for turn in range(4):
        dist.all_reduce(total)
        if (attempt, rank, turn) == ("0", 2, 2):
            os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()
    Path(out, f"attempt-{attempt}-rank-{rank}").write_text(str(int(total)))


def end_badly(how: str) -> None:
    """Rank 1 ends, or does not come, as it is told; rank 0 waits for it."""
    if os.environ["RANK"] == "0" and how == "stay away":
        from ckptlab.ranks import init_from_environment

        init_from_environment(timeout=1)
    elif os.environ["RANK"] == "1" and how == "raise":
        raise ValueError("bad shard")
    elif os.environ["RANK"] == "1" and how == "exit":
        os._exit(3)
    elif os.environ["RANK"] == "1" and how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def kill_the_agent(out: str) -> None:
    """Rank 0 kills the agent when both ranks are there."""
    Path(out, str(os.getpid())).touch()
    agent = multiprocessing.parent_process()
    while os.environ["RANK"] == "0" and agent is not None and agent.pid is not None:
        if len(os.listdir(out)) == 2:
            os.kill(agent.pid, signal.SIGKILL)
    signal.pause()


def stay(out: str) -> None:
    """Rank 0 has a loader worker, rank 1 is stopped; nobody ends."""
    from test_orphans import busy_loader

    from ckptlab.ranks import init_from_environment

    init_from_environment()
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGSTOP)
    loader = busy_loader()
    Path(out, "ready").touch()
    signal.pause()
    del loader


if __name__ == "__main__":
    main(sys.argv[1])
