"""Steps made small: the same bits for whoever reads them, and one whole step at every moment of the change."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from jobs import train, trained
from obstore.store import MemoryStore
from safetensors.torch import load_file
from states import load_state, make_state
from steps_made_by_hand import MODEL, OPTIM, make_step
from test_by_rank import save_by_rank
from test_hostile import right
from torch import nn

from ckptlab.checkpoint import Contents, load, save
from ckptlab.cli.main import run as command
from ckptlab.errors import CorruptError, LoadError, ResumeError, StepError
from ckptlab.format.codecs import BLOCK_ITEMS, INT8, PLANES, XOR, scales
from ckptlab.ranks import World
from ckptlab.resume import Checkpointer, TrainState
from ckptlab.steps import compare, verify
from ckptlab.steps.housekeeping import list_asides
from ckptlab.steps.retention import retire
from ckptlab.steps.shrink import PHASES, Left, Rule, Shrunk, shrink
from ckptlab.steps.steps import MAX_CHAIN, read_step
from ckptlab.storage import ObjectPath
from ckptlab.storage.objects import Bucket
from ckptlab.tiers import push

LARGE = {"even": np.arange(6000, dtype="f4").reshape(60, 100), "bits": np.arange(1008, dtype="u1").reshape(28, 36)}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(2) as world:
        yield world


def step_of(run: Path, number: int) -> Path:
    return run / f"step-{number:08d}"


def make(run: Path, *numbers: int, cut_dim: int | None = None) -> Path:
    """Make steps of which each has values of its own, and return the path of the last."""
    for number in numbers:
        large = {name: array + np.array(number, array.dtype) for name, array in LARGE.items()}
        make_step(run, number, model={**MODEL, **large}, optim={**OPTIM, **large}, cut_dim=cut_dim)
    return step_of(run, numbers[-1])


def small(path: Path, codec: str = PLANES, pattern: str = "*", parent: int | None = None) -> list[Shrunk | Left]:
    return shrink(path, [Rule(pattern, codec)], parent=parent)


def bases(done: list[Shrunk | Left]) -> list[int | str | None]:
    return [one.base if isinstance(one, Shrunk) else one.why for one in done]


def same(one: Path, other: Path) -> bool:
    return list(compare(read_step(one), read_step(other))) == []


def test_a_run_goes_on_exactly_from_small_steps(world: World, tmp_path: Path) -> None:
    world.run(train, tmp_path / "unbroken", 4)
    world.run(train, tmp_path / "run", 2)
    small(step_of(tmp_path / "run", 1))
    assert bases(small(step_of(tmp_path / "run", 2), XOR)) == [1]
    world.run(train, tmp_path / "run", 4)
    for rank in range(2):
        assert trained(tmp_path / "run", rank) == trained(tmp_path / "unbroken", rank)
    assert same(step_of(tmp_path / "run", 4), step_of(tmp_path / "unbroken", 4))


def save_near(run: Path) -> None:
    """Save what seed 5 stands for as step 5, with a tensor of two frames, and as step 4 what differs from it a little."""
    state = make_state("fsdp", 5)
    save(run, 5, state.contents())
    state.step = 4
    with torch.no_grad():
        for param in state.model.parameters():
            param.mul_(1.001)
    save(run, 4, state.contents())


def test_other_ranks_load_bitwise_what_is_stored_against_another_step(world: World, tmp_path: Path) -> None:
    world.run(save_near, tmp_path)
    world.run(save_by_rank, "fsdp", tmp_path, 6)
    assert bases(small(step_of(tmp_path, 4)) + small(step_of(tmp_path, 5), XOR)) == [None, 4]
    assert bases(small(step_of(tmp_path, 6), pattern="optim/*")) == [None], "though its files hold both sections"
    with World(4) as four:
        for number in (5, 6):
            assert four.run(load_state, "fsdp x tensor parallel", step_of(tmp_path, number), number) == [[]] * 4


@pytest.mark.parametrize("cut_dim", [None, 1])
def test_a_small_step_holds_the_same_however_it_was_cut(cut_dim: int | None, tmp_path: Path) -> None:
    for run in (tmp_path / "a", tmp_path / "b"):
        make(run, 10, 20, cut_dim=cut_dim)
    (done,) = small(step_of(tmp_path / "a", 10))
    assert isinstance(done, Shrunk)
    assert {tensor.codec for tensor in done.tensors if tensor.name in LARGE} == {PLANES}
    assert bases(small(step_of(tmp_path / "a", 20), XOR)) == [10]
    for number in (10, 20):
        step = read_step(step_of(tmp_path / "a", number))
        assert same(step.path, step_of(tmp_path / "b", number))
        assert list(verify(step)) == []
        assert step.num_bytes < read_step(step_of(tmp_path / "b", number)).num_bytes
        spans = [span for named in step.manifest.tensors.values() for record in named.values() for span in record.spans()]
        small_files = {file: record.num_bytes for file, record in step.manifest.files.items() if file.startswith("pieces/")}
        assert small_files == {file: max(end for other, _, end in spans if other == file) for file in small_files}


def test_a_tensor_of_many_frames_comes_back_window_by_window(tmp_path: Path) -> None:
    long = np.arange(9 << 20, dtype="u4").view("u1")[: 9 << 20]
    for run in (tmp_path / "a", tmp_path / "b"):
        make_step(run, 10, model={"long": long}, block_bytes=1 << 20)
    small(step_of(tmp_path / "a", 10))
    assert same(step_of(tmp_path / "a", 10), step_of(tmp_path / "b", 10))


def test_what_does_not_come_back_as_it_was_does_not_take_the_place_of_the_step(tmp_path: Path) -> None:
    step = make(tmp_path, 10)

    def damage(phase: str) -> None:
        (file,) = tmp_path.glob(".small-*/pieces/small-optim-00001.bin")
        file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))

    with pytest.raises(StepError, match="'bits' does not come back as it was"):
        shrink(step, [Rule("optim/even", PLANES)], on_phase=damage)
    assert list_asides(tmp_path) == {}
    assert same(step, make(tmp_path / "again", 10))


def test_model_is_plain_or_has_no_tensor_and_what_a_person_put_into_a_step_stays(tmp_path: Path) -> None:
    before = load_file(make(tmp_path, 10) / "model/model-00001-of-00001.safetensors")
    step = step_of(tmp_path, 10)
    (step / "pinned").touch()
    assert command(["shrink", str(step), "--match", "even", "--match", "optim/exp*=none", "--match", "optim/*"]) == 0
    assert not list(step.glob("model/*")) + list(step.glob("optim/*")), "a tensor of each has a codec"
    assert (step / "pinned").exists()
    other = make(tmp_path, 20)
    assert command(["shrink", str(other), "--match", "optim/*"]) == 0
    after = load_file(other / "model/model-00001-of-00001.safetensors")
    assert before.keys() == after.keys()
    assert torch.equal(after["even"], torch.from_numpy(LARGE["even"] + 20))


def test_what_a_step_is_stored_against_stays_as_long_as_the_step(tmp_path: Path) -> None:
    make(tmp_path, *range(1, 13))
    done = bases(small(tmp_path, XOR))
    assert done[:10] == [None, *range(1, 9), None], "no chain is too long"
    assert done[-1] == "the newest step, which a resume takes; name it to make it small too"
    with pytest.raises(StepError, match=f"step 9 is at the end of a chain of {MAX_CHAIN} steps"):
        small(step_of(tmp_path, 12), XOR, parent=9)
    assert retire(tmp_path, keep_last=4, keep_every=None, just_saved=12) == []
    assert same(step_of(tmp_path, 9), make(tmp_path / "again", 9))
    assert retire(tmp_path, keep_last=2, keep_every=None, just_saved=12) == list(range(1, 10))
    assert same(step_of(tmp_path, 11), make(tmp_path / "again", 11))


def test_a_step_is_not_whole_without_what_it_is_stored_against(tmp_path: Path) -> None:
    make(tmp_path, 10, 20, 30)
    assert bases(small(step_of(tmp_path, 30), XOR, parent=10)) == [10]
    shutil.copytree(step_of(tmp_path, 10), tmp_path / "kept")
    shutil.rmtree(step_of(tmp_path, 10))
    words = "stored against step 10, which is not whole: it is not there"
    assert words in str(read_step(step_of(tmp_path, 30)).fault)
    with pytest.raises(LoadError, match=words):
        load(step_of(tmp_path, 30), lambda manifest, state: Contents(model={}), strict=False)
    assert command(["verify", str(step_of(tmp_path, 30))]) == 1
    make(tmp_path, 10)
    assert same(step_of(tmp_path, 30), make(tmp_path / "again", 30))
    shutil.rmtree(step_of(tmp_path, 10))
    step_of(tmp_path / "again", 30).rename(tmp_path / "not 10")
    make_step(tmp_path, 10, model={**MODEL, **LARGE}, optim={**OPTIM, **LARGE})  # trained again, with other values
    with pytest.raises(CorruptError, match=r"'bits', xor\+planes\+zstd: decodes to bytes with crc32"):
        same(step_of(tmp_path, 30), step_of(tmp_path, 20))


def state_of(value: float) -> TrainState:
    model = nn.Linear(40, 40)
    with torch.no_grad():
        model.weight.copy_(torch.linspace(-value, value, 1600).reshape(40, 40))
    return TrainState(model=model, optimizer=torch.optim.SGD(model.parameters()))


def test_an_inexact_step_is_resumed_only_by_who_allows_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = state_of(3.0)
    state.step = 7
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(state)
    (done,) = small(step_of(tmp_path, 7), INT8)
    other, before = state_of(0.0), state.model.weight.detach().numpy()
    with Checkpointer(tmp_path) as checkpointer, pytest.raises(ResumeError, match=r"step 7 is inexact: .*allow_inexact=True"):
        checkpointer.resume(other)
    assert not other.model.weight.any()
    with Checkpointer(tmp_path, allow_inexact=True) as checkpointer:
        assert checkpointer.resume(other) == 7
    assert "'bias' among them: their values are near those that were saved" in caplog.text
    distance = np.abs(other.model.weight.detach().numpy() - before).reshape(-1)
    scale = np.repeat(scales(before.tobytes(), "F32"), BLOCK_ITEMS)[: len(distance)]
    assert distance.max() > 0
    assert (distance <= scale).all()
    assert isinstance(done, Shrunk)
    assert max(tensor.error for tensor in done.tensors if tensor.name == "weight") == pytest.approx(distance.max())


def test_a_step_on_which_another_is_built_does_not_become_inexact(tmp_path: Path) -> None:
    make(tmp_path, 10, 20)
    small(step_of(tmp_path, 20), XOR)
    assert bases(small(step_of(tmp_path, 10), INT8)) == ["step 20 is stored against it, and int8 would change it"]
    assert bases(small(step_of(tmp_path, 10))) == [None]
    assert same(step_of(tmp_path, 20), make(tmp_path / "again", 20))


KILLED = """if True:
    import os, signal, sys
    from pathlib import Path
    from ckptlab.steps.shrink import Rule, shrink
    def die(what, *_):
        if what == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(die)
    shrink(Path(sys.argv[1]), [Rule("*", "planes+zstd")], on_phase=die)
"""


@pytest.mark.parametrize("phase", [*PHASES, "os.rename", "os.rmdir"])
def test_killed_after_any_phase_and_within_the_last_it_leaves_one_whole_step(phase: str, tmp_path: Path) -> None:
    step = make(tmp_path, 10)
    assert subprocess.run([sys.executable, "-c", KILLED, step, phase], check=False).returncode == -9
    assert read_step(step).whole
    assert list(verify(read_step(step))) == []
    assert same(step, make(tmp_path / "again", 10))
    left = {"clear": [], "os.rmdir": ["trash"]}.get(phase, ["small"])
    assert list(list_asides(tmp_path).values()) == left
    assert bases(small(step)) == [None if phase in ("encode", "verify") else "it is small already"]
    assert list(list_asides(tmp_path).values()) == [kind for kind in left if kind == "trash"], "which the next run removes"


def test_where_two_directories_cannot_change_places_the_next_run_puts_back_what_a_kill_left(tmp_path: Path) -> None:
    make(tmp_path, 10, 20, 30)
    for number in (10, 20):
        shutil.copytree(step_of(tmp_path, number), tmp_path / f".was-step-{number:08d}-ab")
    shutil.rmtree(step_of(tmp_path, 10))  # its small form had not taken its place
    shutil.copytree(step_of(tmp_path, 30), tmp_path / ".small-step-00000010-ab")
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.poll()
        checkpointer.save(state_of(1.0))
    assert list_asides(tmp_path) == {}
    assert same(step_of(tmp_path, 10), make(tmp_path / "again", 10))


def test_a_run_in_use_keeps_its_newest_step_and_goes_on_with_small_older_ones(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        with Checkpointer(tmp_path, keep_last=None) as checkpointer:
            state = state_of(step)
            state.step = step
            checkpointer.save(state)
    with Checkpointer(tmp_path, keep_last=1) as checkpointer:
        assert checkpointer.resume(state_of(0.0)) == 3
        assert bases(small(step_of(tmp_path, 3))) == ["the run is in use: its newest step is left alone"]
        assert bases(small(step_of(tmp_path, 2), XOR)) == ["the run is in use: it may delete what a step is stored against"]
        assert bases(small(tmp_path)) == [None, None, "the newest step, which a resume takes; name it to make it small too"]
        state.step = 4
        checkpointer.save(state)
    assert sorted(name for name in os.listdir(tmp_path) if "step-" in name) == ["step-00000004"]


def test_a_damaged_step_is_not_made_small(tmp_path: Path) -> None:
    step = make(tmp_path, 10)
    data = bytearray((step / "optim/optim-00001-of-00001.safetensors").read_bytes())
    data[-5] ^= 1
    (step / "optim/optim-00001-of-00001.safetensors").write_bytes(data)
    with pytest.raises(StepError, match=r"is left as it is: optim/optim-00001-of-00001.safetensors bytes"):
        small(step)
    assert list_asides(tmp_path) == {}


def test_a_frame_that_is_wrong_under_right_sums_changes_no_model(tmp_path: Path) -> None:
    step, file = make(tmp_path, 10), "pieces/small-model-00001.bin"
    small(step)
    data = bytearray((step / file).read_bytes())
    data[12] ^= 1
    right(file, bytes(data))(step)
    model = {name: torch.zeros(array.shape, dtype=torch.from_numpy(array).dtype) for name, array in {**MODEL, **LARGE}.items()}
    with pytest.raises(CorruptError, match=f"{file}: bytes 0-1008 of model 'bits', planes"):
        load(step, lambda manifest, state: Contents(model=model), model_only=True)
    assert not any(bool(tensor.any()) for tensor in model.values())


def test_the_command_tells_what_became_of_each_step_and_how_far_values_are_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = np.random.default_rng(0).standard_normal((2, 50, 60), "f4")
    for number, values in ((10, noise[0]), (20, noise[1])):
        make_step(tmp_path, number, model={**LARGE, "same": noise[0], "other": values}, optim={**OPTIM, **LARGE})
    assert command(["shrink", str(tmp_path), "--match", "optim/even=int8", "--match", "model/*=none"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"step 10: .* kB are .* kB now, \d\d%\n", said)
    assert re.search(r"int8: 1 tensors, 6.2 kB of 24.0 kB; inexact: optim 'even' is off by up to \d", said)
    assert "step 20: left as it is: the newest step" in said
    assert command(["shrink", str(step_of(tmp_path, 20)), "--codec", "xor+planes+zstd", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(step["step"], step["base"]) for step in told["steps"]] == [(20, 10)]
    codecs = {tensor["name"]: tensor["codec"] for tensor in told["steps"][0]["tensors"] if tensor["section"] == "model"}
    assert (codecs["same"], codecs["other"]) == (XOR, PLANES), "whichever is smaller"
    assert command(["shrink", str(tmp_path), "--parent", "10"]) == 2
    assert "that is xor+planes+zstd" in capsys.readouterr().err
    assert command(["show", str(step_of(tmp_path, 20)), "same"]) == 0
    assert "xor+planes+zstd (exact)" in capsys.readouterr().out


def test_before_a_step_is_pushed_what_it_is_stored_against_is(tmp_path: Path) -> None:
    make(tmp_path, 10, 20)
    small(step_of(tmp_path, 20), XOR)
    there = ObjectPath("s3://bucket", "runs/mine", Bucket("s3://bucket", MemoryStore()))
    push(step_of(tmp_path, 20), there)
    assert same(there / "step-00000020", make(tmp_path / "again", 20))
    small(step_of(tmp_path, 10))
    assert push(step_of(tmp_path, 10), there).sent == {}, "it is there as it was before"
    assert same(there / "step-00000020", step_of(tmp_path, 20))
    other = make_step(tmp_path / "other", 10, model={**MODEL, **LARGE}, optim={**OPTIM, **LARGE})
    small(other)
    with pytest.raises(StepError, match="another step of this number"):
        push(other, there)
