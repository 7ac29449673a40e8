"""Slurm on one node, this machine, as processes of the test: munged, slurmctld, slurmd, all on loopback."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from processes import until

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
SEARCH = f"{os.environ['PATH']}:/usr/sbin"
START_SECONDS = 30
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=2,bf_interval=2
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus}
PartitionName=low Nodes=localhost Default=YES PriorityTier=1 GraceTime=60 OverSubscribe=NO
PartitionName=high Nodes=localhost PriorityTier=2 PreemptMode=OFF
"""  # cred_expire: a requeued job waits for so long, too; 5 is the least that Slurm takes


@contextmanager
def slurm() -> Iterator[Mapping[str, str]]:
    """Start Slurm, where jobs in partition `high` preempt those in `low`; give the environment that its commands need."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: a socket's path has at most 107 bytes
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    conf = CONF.format(host=socket.gethostname().split(".")[0], folder=folder, ports=free_ports(2), cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(conf)
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": SEARCH}
    munged = ["munged", "-F", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket", f"--seed-file={folder}/seed"]
    munged += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log"]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
            stack.enter_context(_running(command, environment, folder))
            if command == munged:
                assert until((folder / "munge.socket").exists, START_SECONDS), _logs(folder)
        assert until(lambda: "idle" in ask(environment, "sinfo", "-h", "-o", "%T"), START_SECONDS), _logs(folder)
        try:
            yield environment
        finally:
            ask(environment, "scancel", "--user=root")
            until(lambda: not ask(environment, "squeue", "-h"), START_SECONDS)


def ask(environment: Mapping[str, str], *command: str) -> str:
    """Run one of Slurm's commands and return what it says."""
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60).stdout.strip()


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def _running(command: list[str], environment: Mapping[str, str], folder: Path) -> Iterator[None]:
    with (folder / f"{command[0]}.out").open("w") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _logs(folder: Path) -> str:
    return "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in (*folder.glob("*.log"), *folder.glob("*.out")))
