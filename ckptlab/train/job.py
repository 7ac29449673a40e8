"""The reference job: FSDP2, AdamW and a checkpoint now and then, as it could stand in anyone's own repository.

All that it does for checkpoints is in `train`: `TrainState`, `resume`, `steps`, `save_if_due`; the rest is plain torch.
torchrun starts it (`-m ckptlab.train`), or torch's elastic agent does (`ckptlab train`, the demo).
"""

import os
import signal
import sys
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn import functional as F
from torch.utils.data import DataLoader

from ckptlab.ranks.join import init_from_environment, take_device
from ckptlab.resume import Checkpointer, ResumableSampler, TrainState
from ckptlab.resume.rng import derive_seed, reseed
from ckptlab.tiers import ObjectStore
from ckptlab.train.model import GPT
from ckptlab.train.options import DETERMINISM, Options
from ckptlab.train.records import cut_records, open_records, write_record
from ckptlab.train.text import CONTEXT, read_text
from ckptlab.train.windows import Windows

WARM_UP_STEPS = 100  # not a share of --steps, so that a finished run can be made longer and stays the same run
REPORT_EVERY = 10  # steps

Batch = tuple[Tensor, Tensor]  # sample numbers [B], bytes [B, CONTEXT + 1]


def train(options: Options) -> None:
    """Train until `options.steps` steps are done, those before a resume included, and save the last one (every rank).

    Raises:
        CkptlabError: the text, the options and what is in the run's folder do not fit together.
        Preempted: a signal has stopped the run, and its last step is saved.
    """
    device = join_ranks(deterministic=options.deterministic)
    options.check(dist.get_world_size())
    torch.manual_seed(options.seed)  # the same model on all ranks …
    model = GPT(CONTEXT).to(device)
    shard(model)
    reseed(derive_seed("rank", options.seed, dist.get_rank()))  # … and then dropout of its own on each
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=WARM_UP_STEPS)
    state = TrainState(model=model, optimizer=optimizer, scheduler=scheduler, loader=make_loader(options))
    with Checkpointer(
        options.run,
        every=options.every,
        keep_last=options.keep_last,
        background=options.background,
        tiers=[ObjectStore(options.push, keep_last=options.keep_last)] if options.push else (),
        grace_seconds=options.grace_seconds,
        allow_inexact=options.allow_inexact,
    ) as checkpointer:
        resumed = checkpointer.resume(state)
        say(f"resumed from step {resumed}" if resumed else "a fresh start")
        cut_records(options.run, resumed, dist.get_rank(), dist.get_world_size())
        with open_records(options.run, dist.get_rank()) as records:
            for micro_batches in state.steps(until=options.steps):
                loss = train_step(model, optimizer, micro_batches, die=must_die(options, state.step))
                scheduler.step()
                write_record(records, state.step, [sample for samples, _ in micro_batches for sample in samples.tolist()], loss)
                if state.step % REPORT_EVERY == 0 or state.step == options.steps:
                    say(f"step {state.step} of {options.steps}, loss {loss:.3f}")
                if checkpointer.save_if_due(state) is None and state.step == options.steps:
                    checkpointer.save(state)
    dist.destroy_process_group()


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: Sequence[Batch], *, die: bool) -> float:
    """Do one optimizer step; return this rank's loss. Gradients cross between ranks once, with the last micro-batch."""
    assert isinstance(model, FSDPModule)
    device, total = next(model.parameters()).device, 0.0
    for number, (_, windows) in enumerate(micro_batches, start=1):
        windows = windows.to(device)
        model.set_requires_gradient_sync(number == len(micro_batches))
        scores = model(windows[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten()) / len(micro_batches)
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


def must_die(options: Options, step: int) -> bool:
    """Whether `--kill` wants this rank dead in this step: a fault to practise with; after the restart there is none."""
    return options.kill == (dist.get_rank(), step) and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"


def shard(model: GPT) -> None:
    """Give every rank its part: one FSDP2 group a block, and one for the rest, in which the tied tensor stays one."""
    device_type = next(model.parameters()).device.type
    mesh = init_device_mesh(device_type, (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def make_loader(options: Options) -> DataLoader[tuple[int, Tensor]]:
    """Deal out the text; which samples make up which step depends on the seed only, not on ranks or loader workers."""
    data = Windows(read_text(options.text))
    sampler = ResumableSampler(len(data), global_batch=options.global_batch, seed=options.seed, accumulate=options.accumulate)
    return DataLoader(data, batch_sampler=sampler, num_workers=options.workers)


def join_ranks(*, deterministic: bool) -> torch.device:
    """Meet the other ranks and return this rank's device; without a launcher the world is this process."""
    if deterministic:
        make_deterministic()
    if "RANK" in os.environ:
        backend = init_from_environment()
    else:
        backend = take_device("auto", 0, 1)
        store = dist.HashStore()  # type: ignore[attr-defined]  # public, but torch does not say so in types
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    device = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")
    say(
        f"world of {dist.get_world_size()}, {backend} on {device.type}, {DETERMINISM if deterministic else 'not deterministic'}"
    )
    return device


def make_deterministic() -> None:
    """The same input gives the same bits: for every kernel of torch, cuBLAS and cuDNN, and one thread a rank on the CPU."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.set_num_threads(1)


def say(line: str) -> None:
    """Print on rank 0, as a log: what a caller reads from stdout is his own."""
    if dist.get_rank() == 0:
        print(line, file=sys.stderr, flush=True)
