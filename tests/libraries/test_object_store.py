"""A step in an object store, over real HTTP: pushed whole or not at all, read in ranges, and never believed unchecked."""

import json
import re
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from jobs import train, trained
from object_store import Proxy, moto, use
from processes import until
from states import load_state, save_state
from steps_made_by_hand import BLOCK_BYTES, MODEL, make_step
from torch import nn

from ckptlab.cli.main import run
from ckptlab.errors import LoadError, RankLost, StepError, StoreError
from ckptlab.ranks import World
from ckptlab.resume import load_weights
from ckptlab.steps import compare, list_steps, newest_step
from ckptlab.steps.steps import read_step
from ckptlab.storage import place
from ckptlab.tiers import ObjectStore, push

pytestmark = pytest.mark.libraries
MODEL_FILE = "model/model-00001-of-00001.safetensors"
CKPTLAB = [sys.executable, "-c", "from ckptlab.cli.main import main; main()"]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with moto() as port:
        yield port


@pytest.fixture
def proxy(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    yield proxy
    proxy.close()


@pytest.fixture
def there(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a run in a new bucket."""
    return use(monkeypatch, proxy, f"bucket-{uuid.uuid4().hex[:12]}")


def at(address: str, name: str = "") -> str:
    """Return the path under which the server has an object."""
    return f"/{address.removeprefix('s3://')}/{name}"


class Part(nn.Module):
    """One of the two tensors of a step made by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.zeros(8))


def test_a_pushed_run_is_listed_shown_verified_and_compared_at_its_address(
    tmp_path: Path, there: str, proxy: Proxy, capsys
) -> None:
    make_step(tmp_path, 20), make_step(tmp_path, 40, cut_dim=1)
    assert run(["push", str(tmp_path), there]) == 0
    assert proxy.puts()[-1].endswith("/step-00000020/manifest.json")
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["step 40", "step 20"]
    assert run(["ls", there]) == run(["verify", there]) == run(["show", f"{there}/step-00000040", "proj.weight"]) == 0
    assert capsys.readouterr().out.count("whole") == 2
    assert run(["diff", f"{there}/step-00000040", str(tmp_path / "step-00000040")]) == 0
    num_puts = len(proxy.puts())
    assert run(["push", str(tmp_path), there, "--json"]) == 0
    assert [step["sent"] for step in json.loads(capsys.readouterr().out.partition("\n")[2])["steps"]] == [{}, {}]
    assert len(proxy.puts()) == num_puts
    assert run(["show", f"{there}/step-00000030"]) == 2
    assert "steps in s3://" in capsys.readouterr().err


def test_a_step_is_loaded_from_a_store_on_two_ranks_bit_for_bit(tmp_path: Path, there: str) -> None:
    with World(2) as world:
        world.run(save_state, "fsdp", tmp_path, 3)
        push(tmp_path / "step-00000003", there)
        assert world.run(load_state, "fsdp", f"{there}/step-00000003", 3) == [[], []]


def test_a_large_file_goes_up_in_parts_and_comes_down_as_it_was(tmp_path: Path, there: str, proxy: Proxy) -> None:
    big = np.arange(5 << 20, dtype="f4")  # 20 MiB, of which a part has 8
    make_step(tmp_path, 40, model={**MODEL, "proj.weight": big}, block_bytes=4 << 20)
    push(tmp_path / "step-00000040", there)
    assert sum("partNumber" in answer.key for answer in proxy.answers) == 3
    assert run(["verify", f"{there}/step-00000040"]) == 0


def test_of_a_part_of_the_model_only_the_blocks_that_it_lies_in_are_fetched(tmp_path: Path, there: str, proxy: Proxy) -> None:
    step = make_step(tmp_path, 40)
    push(step, there)
    proxy.answers.clear()
    part = Part()
    load_weights(f"{there}/step-00000040", part, strict=False)
    assert torch.equal(part.norm.weight.detach(), torch.from_numpy(MODEL["norm.weight"]))
    (piece,) = (manifest := read_step(step).manifest).tensors["model"]["norm.weight"].pieces
    blocks = range(piece.begin // BLOCK_BYTES, (piece.begin + 32 - 1) // BLOCK_BYTES + 1)
    assert proxy.fetched(MODEL_FILE) == 2 * len(blocks) * BLOCK_BYTES  # checked, then read into the model
    everything = sum(a.num_bytes for a in proxy.answers if "list-type" not in a.key)
    others = len(manifest.to_json()) + manifest.files["state.json"].num_bytes
    assert everything == proxy.fetched(MODEL_FILE) + others, proxy.answers


def test_killed_in_the_middle_of_a_push_no_step_is_there_and_the_next_push_sends_only_the_rest(
    tmp_path: Path, there: str, proxy: Proxy, capsys
) -> None:
    step = make_step(tmp_path, 40)
    proxy.fault = lambda method, path: "hang" if method == "PUT" and path.endswith("rank-00001.json") else None
    pushing = subprocess.Popen([*CKPTLAB, "push", str(step), there])
    assert proxy.hung.wait(60)
    pushing.kill()
    assert pushing.wait() != 0
    proxy.fault = lambda method, path: None
    first = set(proxy.puts())
    assert first
    assert run(["verify", f"{there}/step-00000040"]) == 1
    assert "written, but not committed" in capsys.readouterr().out
    with pytest.raises(LoadError, match="written, but not committed"):
        load_weights(f"{there}/step-00000040", Part(), strict=False)
    proxy.answers.clear()
    push(step, there)
    assert not first & set(proxy.puts())
    assert run(["verify", f"{there}/step-00000040"]) == 0


def test_a_flipped_bit_in_the_store_is_found_and_refused(tmp_path: Path, there: str, proxy: Proxy, capsys) -> None:
    step = make_step(tmp_path, 40)
    push(step, there)
    data = bytearray((step / MODEL_FILE).read_bytes())
    data[-1] ^= 1
    proxy.ask("PUT", at(there, f"step-00000040/{MODEL_FILE}"), bytes(data))
    assert run(["ls", there]) == 0
    assert run(["verify", there]) == 1
    assert "tensors in it: proj.weight" in capsys.readouterr().out
    model = Part()
    model.proj = nn.Linear(8, 12, bias=False)
    nn.init.zeros_(model.proj.weight)
    with pytest.raises(LoadError, match=f"s3://.*{MODEL_FILE} bytes .*proj.weight"):
        load_weights(f"{there}/step-00000040", model)
    assert not any(tensor.any() for tensor in model.parameters())


def test_a_committed_step_is_never_overwritten_not_even_by_one_who_comes_at_the_same_time(
    tmp_path: Path, there: str, proxy: Proxy
) -> None:
    mine, other = make_step(tmp_path / "mine", 40), make_step(tmp_path / "other", 40, state={"epoch": 2})
    manifest = at(there, "step-00000040/manifest.json")

    def faster(method: str, path: str) -> None:
        if method == "PUT" and path == manifest:
            proxy.ask("PUT", manifest, (other / "manifest.json").read_bytes())

    proxy.fault = faster
    with pytest.raises(StepError, match="another step of this number"):
        push(mine, there)
    assert proxy.ask("GET", manifest)[2] == (other / "manifest.json").read_bytes()
    proxy.fault = lambda method, path: None
    push(other, there)
    num_puts = len(proxy.puts())
    with pytest.raises(StepError, match="another step of this number"):
        push(mine, there)
    assert len(proxy.puts()) == num_puts


def test_what_a_store_loses_is_no_step_and_is_sent_again(tmp_path: Path, there: str, proxy: Proxy, capsys) -> None:
    step = make_step(tmp_path, 40)
    proxy.fault = lambda method, path: "lose" if method == "PUT" and path.endswith("state.json") else None
    with pytest.raises(StoreError, match=r"not committed.*state\.json"):
        push(step, there)
    assert not read_step(place(f"{there}/step-00000040")).whole
    proxy.fault = lambda method, path: None
    push(step, there)
    proxy.ask("DELETE", at(there, f"step-00000040/{MODEL_FILE}"))
    assert run(["verify", there]) == 1
    assert f"{MODEL_FILE} bytes" in capsys.readouterr().out
    with pytest.raises(LoadError, match=f"not whole: {MODEL_FILE}"):
        load_weights(f"{there}/step-00000040", Part(), strict=False)
    assert push(step, there).sent.keys() == {MODEL_FILE}
    assert run(["verify", there]) == 0


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (500, "the store did not do what it was asked: .*500"),
        (400, "the store did not do what it was asked: .*400"),  # an expired token: the answer repeats it
        ("hang", "the store did not do what it was asked"),
        (301, "the bucket is in another region; set AWS_REGION"),
        (403, "the credentials were refused; set AWS_ACCESS_KEY_ID"),
        ("no bucket", "there is no such bucket"),
        ("nobody", "the store did not do what it was asked"),
    ],
)
def test_a_store_that_does_not_answer_or_refuses_ends_in_one_line_and_not_in_another_step(
    fault: int | str, says: str, tmp_path: Path, there: str, proxy: Proxy, monkeypatch, capsys
) -> None:
    step = make_step(tmp_path, 40)
    push(step, there)
    monkeypatch.setenv("CKPTLAB_STORE_SECONDS", "1")
    if fault == "no bucket":
        there = "s3://nobody-made-this/runs/mine"
    elif fault == "nobody":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    else:
        proxy.fault = lambda method, path: fault
    for command in (["ls", there], ["verify", f"{there}/step-00000040"], ["push", str(step), there]):
        assert run(command) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert there in error
        assert re.search(says, error), error
        assert not re.search("AKIA|never-shown", error)
    with pytest.raises(LoadError, match=says):
        load_weights(f"{there}/step-00000040", Part(), strict=False)


def test_a_step_of_which_the_store_does_not_tell_is_not_passed_over_for_an_older_one(
    tmp_path: Path, there: str, proxy: Proxy, monkeypatch
) -> None:
    for number in (20, 40):
        push(make_step(tmp_path, number), there)
    monkeypatch.setenv("CKPTLAB_STORE_SECONDS", "1")
    proxy.fault = lambda method, path: 500 if "step-00000040/manifest.json" in path else None
    assert run(["ls", there]) == 2
    with pytest.raises(StoreError, match=r"step-00000040/manifest\.json"):
        newest_step(place(there))


def test_what_a_listing_does_not_tell_yet_is_asked_for(tmp_path: Path, there: str, proxy: Proxy) -> None:
    push(make_step(tmp_path, 40), there)
    late = re.compile(rb"<Contents>(?:(?!</Contents>).)*model-00001(?:(?!</Contents>).)*</Contents>", re.DOTALL)
    removed: list[int] = []

    def without(listing: bytes) -> bytes:
        listing, count = late.subn(b"", listing)
        removed.append(count)
        return listing

    proxy.fault = lambda method, path: without if "list-type" in path else None
    assert run(["ls", there, "--json"]) == run(["verify", there]) == 0
    load_weights(f"{there}/step-00000040", Part(), strict=False)
    assert sum(removed) > 2


@pytest.mark.parametrize("fault", [503, "cut"])
def test_an_answer_that_fails_once_is_asked_for_again(fault: int | str, tmp_path: Path, there: str, proxy: Proxy) -> None:
    push(make_step(tmp_path, 40), there)
    failed: set[str] = set()

    def once(method: str, path: str) -> int | str | None:
        first = path not in failed
        failed.add(path)
        return fault if first and method == "GET" and "list-type" not in path else None

    proxy.fault = once
    assert run(["verify", there]) == 0
    assert any(MODEL_FILE in path for path in failed)


def test_a_run_killed_while_a_step_is_sent_goes_on_from_the_store_alone_and_ends_bitwise_as_if_unbroken(
    tmp_path: Path, there: str, proxy: Proxy, capsys
) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    with World(2) as world:

        def train_and_lose_rank_0() -> None:
            with pytest.raises(RankLost):
                world.run(train, broken, 4, tiers=[ObjectStore(there, keep_last=2)], keep_last=1)

        world.run(train, unbroken, 7)
        world.run(train, broken, 1, tiers=[ObjectStore(there, keep_last=2)], keep_last=1)
        proxy.fault = lambda method, path: "hang" if method == "PUT" and "/model/model-" in path else None
        training = threading.Thread(target=train_and_lose_rank_0)
        training.start()
        assert proxy.hung.wait(60)
        assert until(lambda: list_steps(broken)[-1].number == 4, 60)
        world.kill(0)
        training.join()
        proxy.fault = lambda method, path: None
        assert [step.number for step in list_steps(place(there)) if not step.torn] == [1]
        assert run(["verify", there]) == 0
        assert "not whole: no manifest.json" in capsys.readouterr().err, "nothing is wrong with what is no step"
        world.restart()
        world.run(train, broken, 5, tiers=[ObjectStore(there, keep_last=2)], keep_last=1)
        assert [step.number for step in list_steps(place(there)) if step.whole][-1] == 5
        shutil.rmtree(broken)
        world.run(train, broken, 7, tiers=[ObjectStore(there, keep_last=2)], keep_last=1)
    assert run(["verify", there]) == 0
    steps = list_steps(place(there))
    assert [step.number for step in steps][1:] == [7]
    assert all(step.whole for step in steps)
    assert list(compare(steps[-1], read_step(unbroken / "step-00000007"))) == []
    assert [json.loads(line)["step"] for line in (broken / "trained-0.jsonl").read_text().splitlines()] == [6, 7]
    for rank in range(2):
        assert trained(broken, rank).items() <= trained(unbroken, rank).items()
