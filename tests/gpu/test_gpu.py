"""What only a GPU shows: copies queued on streams, its generator, ranks that share it. For one GPU and five minutes."""

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ckptlab.checkpoint import Contents, load
from ckptlab.checkpoint.host_buffer import HostBuffer
from ckptlab.cli.main import run
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState

pytestmark = pytest.mark.gpu


def need_devices(count: int) -> None:
    """Skip where there are fewer GPUs; fail where CKPTLAB_REQUIRE asks for these tests."""
    found = torch.cuda.device_count()
    if found < count:
        refuse = pytest.fail if "gpu" in os.environ.get("CKPTLAB_REQUIRE", "").split(",") and count == 1 else pytest.skip
        refuse(f"torch sees {found} CUDA devices, {count} needed")


@pytest.fixture(params=["gloo", "nccl"])
def world(request, monkeypatch) -> Iterator[World]:
    """Two ranks that share a GPU over gloo, and two that have one each."""
    need_devices(1 if request.param == "gloo" else 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0" if request.param == "gloo" else "0,1")
    with World(2, device="cuda") as world:
        assert world.run("dist.get_backend()") == [request.param] * 2
        yield world


def save_and_change(folder: Path, device: str, width: int) -> list[bool]:
    """Save ones that a busy device has yet to turn into twos, change them at once; return whether twos were saved."""
    held = torch.ones(width, width, device=device)
    turned = torch.ones(width, 2 * width, device=device)[:, ::2].t()
    model = nn.ParameterDict({"held": held, "turned": turned})
    state = TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()))
    with Checkpointer(folder, background="wait") as checkpointer:
        for step in (1, 2):
            state.step = step
            busy = torch.eye(width, device=device)
            for _ in range(50):
                busy = busy @ busy
            with torch.no_grad():
                for param in model.values():
                    param.fill_(1), param.add_(busy[0, 0])
            checkpointer.save(state)
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()) if device == "cuda" else nullcontext():
                for param in model.values():
                    param.fill_(3)
            if device == "cuda":
                torch.cuda.synchronize()
        checkpointer.wait()
    found = {name: torch.zeros(width, width, device=device) for name in ("held", "turned")}
    for step in (1, 2):
        load(folder / f"step-{step:08}", lambda manifest, state: Contents(model=found))
        assert all(bool((tensor == 2).all()) for tensor in found.values()), step
    return [bool((param == 3).all()) for param in model.values()]


def test_a_background_save_holds_what_the_device_had_been_given_to_do_and_nothing_later(world: World, tmp_path: Path) -> None:
    assert world.run(save_and_change, tmp_path, "cuda", 4096) == [[True, True]] * 2


def copied(device: str) -> tuple[bool, bool]:
    """Copy what is larger the second time, bit for bit; return whether all of the copy is pinned, and on the CPU."""
    buffer = HostBuffer()
    for size in (5, 5000):
        live = {"few": torch.arange(size, device=device), "halves": torch.rand(size, 3, device=device).half()}
        copies = buffer.copy(Contents(model=live), 0, 1).copies
        assert copies is not None
        found = {name: local.data for name, local in copies["model"].items()}
        assert all(torch.equal(found[name], tensor.cpu()) for name, tensor in live.items())
    return all(tensor.is_pinned() for tensor in found.values()), all(tensor.device.type == "cpu" for tensor in found.values())


def test_the_copy_is_pinned_memory_of_the_host(world: World) -> None:
    assert world.run(copied, "cuda") == [(True, True)] * 2


def train(folder: Path, until: int, device: str) -> list[Tensor]:
    """Train shards by gradients that are drawn on the device, resuming what is there; return the shards and a draw."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 129), nn.Linear(129, 3)).to(device)
    fully_shard(model, mesh=init_device_mesh(device, (dist.get_world_size(),)))
    torch.manual_seed(dist.get_rank())
    state = TrainState(model=model, optimizer=torch.optim.AdamW(model.parameters()))
    with Checkpointer(folder, background="wait") as checkpointer:
        checkpointer.resume(state)
        while state.step < until:
            for param in model.parameters():
                drawn = torch.randn_like(param.to_local())
                layout = {"shape": param.shape, "stride": param.stride()}
                param.grad = DTensor.from_local(drawn, param.device_mesh, param.placements, run_check=False, **layout)
            state.optimizer.step()
            state.step += 1
            checkpointer.save(state)
    return [*(param.to_local().detach().cpu() for param in model.parameters()), torch.rand(3, device=device).cpu()]


def test_shards_on_a_device_go_on_bitwise_with_its_generator(world: World, tmp_path: Path) -> None:
    unbroken = world.run(train, tmp_path / "unbroken", 4, "cuda")
    world.run(train, tmp_path / "broken", 2, "cuda")
    world.restart()
    resumed = world.run(train, tmp_path / "broken", 4, "cuda")
    for expected, found in zip(unbroken, resumed, strict=True):
        assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]


def test_the_bench_compares_the_stall_with_a_copy_into_pinned_memory(tmp_path: Path, capsys) -> None:
    need_devices(1)
    assert run(["bench", "--device", "cuda", "--bytes", "256MB", "--repeat", "3", "--dir", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["device"] == "cuda"
    assert (
        "ckptlab background" in document["background_stall"]["vs_floor"].keys() & document["background_stall"]["vs_dcp"].keys()
    )
    assert document["training_step"]["seconds"].keys() == {"ckptlab background", "dcp.async_save", "no save"}
