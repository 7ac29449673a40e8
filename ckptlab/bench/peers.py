"""What others save and load with. Rank side; see `contenders.py` for what a contender is.

Every peer is made as durable as ckptlab: what it does not fsync itself is fsynced here, within its time.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from ckptlab.bench.stage import Stage, State, sync_directory, values


def dcp_save(stage: Stage) -> Iterator[None]:
    """PyTorch DCP, as it comes."""
    folder, state = stage.fresh(), stage.state()
    yield
    _save(state, folder)
    _sync_names(stage, folder)
    yield


def torch_save(stage: Stage) -> Iterator[None]:
    """`torch.save`, a file a rank."""
    path, tensors = stage.fresh() / f"rank-{stage.rank}.pt", stage.share(stage.state())
    yield
    with path.open("wb") as file:
        torch.save(tensors, file)
        file.flush()
        os.fsync(file.fileno())
    _sync_names(stage, path.parent)
    yield


def safetensors_save(stage: Stage) -> Iterator[None]:
    """`safetensors.torch.save_file`, a file a rank."""
    from safetensors.torch import save_file  # here: without it, the other peers are measured

    path, tensors = stage.fresh() / f"rank-{stage.rank}.safetensors", stage.share(stage.state())
    yield
    save_file(tensors, path)
    _sync(path)
    _sync_names(stage, path.parent)
    yield


def dcp_hf_consolidated(stage: Stage) -> Iterator[None]:
    """DCP's Hugging Face files, made of shards by rank 0 when all have written theirs."""
    folder, model = stage.fresh(), stage.state()["model"]
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True, enable_consolidation=True)
    yield
    save(dict(model), storage_writer=writer)
    if stage.rank == 0:
        for path in folder.glob("*.*"):
            _sync(path)
    _sync_names(stage, folder)
    yield
    if stage.rank == 0:
        _compare_with_files(stage, folder)


def dcp_hf_consolidated_by_all(stage: Stage) -> Iterator[None]:
    """DCP's Hugging Face files, one for each rank, which it makes of the shards when all have written theirs."""
    from torch.distributed.checkpoint._consolidate_hf_safetensors import (
        consolidate_safetensors_files_on_every_rank as consolidate,
    )

    folder, model = stage.fresh(), stage.state()["model"]
    file_of = {name: 1 + number * stage.world_size // len(model) for number, name in enumerate(model)}
    shards = folder / "sharded"
    writer = HuggingFaceStorageWriter(str(shards), file_of, save_distributed=True)
    yield
    save(dict(model), storage_writer=writer)
    consolidate(str(shards), str(folder), file_of)
    for path in sorted(folder.glob("*.*"))[stage.rank :: stage.world_size]:
        _sync(path)
    _sync_names(stage, folder)
    yield
    if stage.rank == 0:
        _compare_with_files(stage, folder)


def dcp_hf_sharded(stage: Stage) -> Iterator[None]:
    """DCP's Hugging Face files as the ranks write them: pieces of tensors, which only DCP can put together."""
    folder, model = stage.fresh(), stage.state()["model"]
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    yield
    save(dict(model), storage_writer=writer)
    _sync_names(stage, folder)
    yield
    target = stage.blank()["model"]
    load(dict(target), storage_reader=HuggingFaceStorageReader(str(folder)))
    stage.compare({"model": target})


def dcp_async_save(stage: Stage) -> Iterator[None]:
    """How long `async_save` keeps the caller."""
    folder, state = stage.fresh(), stage.state()
    yield
    future: Any = async_save(dict(state), checkpoint_id=folder)
    yield
    future.result()


def dcp_async_save_kept(stage: Stage) -> Iterator[None]:
    """The same with a stager that has its buffers already."""
    folder, state = stage.fresh(), stage.state()
    stager = DefaultStager(StagingOptions(False, False, False, False))  # those that `async_save` takes itself
    stager.stage(dict(state))
    yield
    future: Any = async_save(dict(state), checkpoint_id=folder, async_stager=stager)
    yield
    future.result()
    stager.close()


def dcp_load(stage: Stage) -> Iterator[None]:
    """Load what DCP has saved."""
    return _load(stage, stage.layout)


def dcp_reshard(stage: Stage) -> Iterator[None]:
    """The same into the other layout."""
    return _load(stage, stage.other_layout)


def _load(stage: Stage, layout: str) -> Iterator[None]:
    folder = stage.kept("dcp", lambda path: _save(stage.state(), path))
    target = stage.blank(layout)
    stage.turn_cache(folder)
    yield
    load(dict(target), checkpoint_id=folder)
    yield
    stage.compare(target, layout)


def _save(state: State, folder: Path) -> None:
    save(dict(state), checkpoint_id=folder)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_names(stage: Stage, folder: Path) -> None:
    if stage.rank == 0:
        sync_directory(folder)


def _compare_with_files(stage: Stage, folder: Path) -> None:
    """Take down a fault where the files are not, bit for bit, the whole model."""
    from safetensors import safe_open

    expected = {name: tuple(tensor.shape) for name, tensor in stage.state()["model"].items()}
    found: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118  # it is no dict
                found.add(name)
                if name in expected and not torch.equal(file.get_tensor(name), values(name, expected[name])):
                    stage.faults.append(f"{name} is not what was saved")
    if found != expected.keys():
        stage.faults.append(f"the files hold {len(found)} tensors, expected {len(expected)}")
