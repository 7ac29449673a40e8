"""The process that keeps a job's ranks running: torch's elastic agent, which reports each attempt that fails; and its ranks."""

import json
import logging
import os
import pkgutil
import sys
from dataclasses import asdict
from math import ceil
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from ckptlab.ranks import forkserver, guard
from ckptlab.ranks.answer import Raised, describe_error
from ckptlab.ranks.elastic import Failure, Job
from ckptlab.ranks.join import STORE_FILE
from ckptlab.ranks.verdict import first_to_fail


def main(job: Job, reports: Connection) -> None:
    """Run the job to its end; the exit code is 0 when an attempt succeeded."""
    logging.disable()  # the reports say it
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # that store would listen on every interface, and outlive an attempt
    forkserver.reuse()
    try:
        result = _Agent(job, reports).run()
    except SignalException:  # the ranks are gone by now
        sys.exit(1)
    sys.exit(result.is_failed())


def work(job: Job) -> None:
    """Be one rank: call the job's function, and leave what it raises in a file for the agent."""
    guard.end_with_parent()
    os.environ[STORE_FILE] = str(job.folder / "store")
    try:
        pkgutil.resolve_name(job.function)(*job.args)
    except Exception as error:  # whatever the job raises: the agent tells it, and decides
        file = _raised_file(job, int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"]))
        file.with_suffix(".part").write_text(json.dumps(asdict(describe_error(error))))
        file.with_suffix(".part").rename(file)  # whole or not there: the agent may end this rank at any moment
        sys.exit(1)


class _Agent(LocalElasticAgent):
    """torch's agent, on this machine only and without a port, which also tells why an attempt has failed."""

    def __init__(self, job: Job, reports: Connection) -> None:
        self._job = job
        self._reports = reports
        meeting = RendezvousParameters("c10d", str(job.folder / "agent"), "job", 1, 1, "127.0.0.1", store_type="file")
        spec = WorkerSpec(
            role="rank",
            local_world_size=job.num_ranks,
            rdzv_handler=get_rendezvous_handler(meeting),
            entrypoint=work,
            args=(job,),
            max_restarts=job.max_restarts,
            local_addr="127.0.0.1",
        )
        super().__init__(spec, DefaultLogsSpecs(log_dir=os.devnull), start_method="forkserver")
        if job.grace_seconds is not None:
            self._shutdown_timeout = ceil(job.grace_seconds)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.is_failed():
            self._reports.send(self._failure(next(iter(result.failures))))
        return result

    def _shutdown(self, *args: Any, **kwargs: Any) -> None:
        if isinstance(self._pcontext, MultiprocessContext):
            self._pcontext._worker_finished_event.set()  # a rank that is done waits for it, and would have to be killed
        super()._shutdown(*args, **kwargs)

    def _failure(self, seen: int) -> Failure:
        assert isinstance(self._pcontext, MultiprocessContext)
        assert self._pcontext._pc is not None
        attempt = self._job.max_restarts - self._remaining_restarts
        exit_codes = [process.exitcode for process in self._pcontext._pc.processes]
        files = {rank: _raised_file(self._job, attempt, rank) for rank in range(len(exit_codes))}
        raised = {rank: Raised(**json.loads(file.read_text())) for rank, file in files.items() if file.exists()}
        rank = first_to_fail(exit_codes, raised, seen)
        return Failure(
            attempt=attempt,
            rank=rank,
            how=f"raised {raised[rank].what}" if rank in raised else forkserver.how_it_ended(exit_codes[rank]),
            own_lines=raised[rank].own_lines if rank in raised else None,
            restarts_left=self._remaining_restarts,
        )


def _raised_file(job: Job, attempt: int, rank: int) -> Path:
    return job.folder / f"attempt-{attempt}-rank-{rank}.json"
