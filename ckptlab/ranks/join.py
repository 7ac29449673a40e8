"""How the ranks of a job meet: with or without a GPU each, once or again after a restart. Every rank calls it."""

import os
import sys
import time
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

from ckptlab.errors import WorldError
from ckptlab.ranks.verdict import name_ranks

if TYPE_CHECKING:  # the parent imports this module, and does not load torch
    from torch.distributed.distributed_c10d import Store

STORE_FILE = "CKPTLAB_STORE_FILE"  # set by run_job: its ranks meet in a file instead of at a port
_FROM_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def init_from_environment(timeout: float = 600.0) -> str:
    """Initialise torch.distributed in a process that `run_job` or torchrun started; return the backend's name.

    NCCL when there is a GPU for each rank of this machine (made the current device), else gloo on the CPU. Every rank calls it.
    The ranks of a restarted job meet again: in the store, which the agent keeps for all attempts, gloo would find the addresses
    of dead processes (pytorch#135712), and so each attempt agrees on a prefix of its own.

    At its end a rank calls `torch.distributed.destroy_process_group()`: a script that exits without it is often aborted
    (SIGABRT, by gloo's threads), and torchrun starts the finished job again.

    Args:
        timeout: seconds that a collective, and the meeting, may take.

    Raises:
        WorldError: no launcher has started this process, or other ranks did not come (on rank 0).
    """
    missing = [name for name in _FROM_LAUNCHER if name not in os.environ]
    if missing:
        raise WorldError(f"this process is not a rank: {', '.join(missing)} not set; start it with torchrun or run_job")
    from torch.distributed.distributed_c10d import PrefixStore, init_process_group
    from torch.distributed.rendezvous import rendezvous

    rank, world_size, local_rank, local_world_size = (int(os.environ[name]) for name in _FROM_LAUNCHER)
    if local_world_size == world_size:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    backend = take_device("auto", local_rank, local_world_size)
    limit = timedelta(seconds=timeout)
    meeting_point = f"file://{os.environ[STORE_FILE]}" if STORE_FILE in os.environ else "env://"
    store, _, _ = next(rendezvous(meeting_point, rank, world_size, timeout=limit))
    store.set_timeout(limit)
    store = PrefixStore(_agree_on_prefix(store, rank, world_size, timeout), store)
    init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=limit)
    return backend


def take_device(device: str, local_rank: int, local_world_size: int) -> str:
    """Make this rank's device the current one and return the backend for it. Every rank calls it."""
    import torch

    num_devices = 0 if device == "cpu" else torch.cuda.device_count()
    if device == "cuda" and num_devices == 0:
        raise WorldError("device='cuda', but torch sees no CUDA device; use device='auto'")
    one_each = 0 < local_world_size <= num_devices
    if one_each or device == "cuda":
        torch.cuda.set_device(local_rank % num_devices)
    return "nccl" if one_each else "gloo"


def _agree_on_prefix(store: "Store", rank: int, world_size: int, timeout: float) -> str:
    """Agree on a name that no earlier attempt has used, in a store that still holds what earlier attempts wrote.

    Each rank says hello with a new name of its own. Rank 0 answers every such name with the prefix, stale ones too, until all
    ranks have confirmed. To count attempts is not enough: the agents of several machines count differently
    (TORCHELASTIC_RESTART_COUNT), as only the agent whose rank failed does.
    """
    mine = uuid.uuid4().hex
    store.set(f"hello/{rank}", mine)
    if rank != 0:
        prefix = store.get(f"welcome/{mine}").decode()
        store.set(f"{prefix}/{rank}", "here")
        return prefix
    deadline = time.monotonic() + timeout
    missing = list(range(1, world_size))
    while missing := [other for other in missing if not store.check([f"{mine}/{other}"])]:
        if time.monotonic() > deadline:
            raise WorldError(f"{name_ranks(missing)} did not come to meet rank 0 within {timeout:g} s")
        for other in missing:
            if store.check([f"hello/{other}"]):
                store.set(f"welcome/{store.get(f'hello/{other}').decode()}", mine)
        time.sleep(0.01)  # a store waits for all of some keys; here any of them may come
    return mine
