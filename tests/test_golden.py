"""Format 1, byte for byte: a step that was written once is written the same today, and read."""

import json
from pathlib import Path

import torch

import ckptlab
from ckptlab.checkpoint import Contents, load, save
from ckptlab.steps import list_steps, verify

GOLDEN = Path(__file__).parent / "golden"


def golden_contents(scale: float = 1.0) -> Contents:
    return Contents(
        model={
            "embed.weight": torch.arange(20.0).reshape(5, 4) * scale,
            "norm.weight": torch.tensor([1.0, -0.0, 2.5, 1e-3]).bfloat16() * scale,
            "seen": torch.tensor(int(17 * scale)),
            "none": torch.empty(0, 3),
        },
        optim={
            "exp_avg::embed.weight": torch.full((5, 4), 0.1) * scale,
            "step::embed.weight": torch.tensor(40.0) * scale,
        },
        aliases={"head.weight": "embed.weight"},
        state={
            "step": 40,
            "betas": (0.9, 0.95),
            "best": float("inf"),
            "lr": torch.tensor(0.001),
            "milestones": {3: 1},
            "name": "ọzụzụ",
            "$odd": None,
            "raw": b"\x00\x01",
        },
        rank_tensors={"rng::torch": torch.arange(16, dtype=torch.uint8)},
        rank_state={"rng": {"position": 624}},
        exact_if={"torch": "2.13.0", "world_size": 1},
    )


def files(step: Path) -> dict[str, bytes]:
    return {path.relative_to(step).as_posix(): path.read_bytes() for path in step.rglob("*") if path.is_file()}


def without_version(manifest: bytes) -> dict[str, object]:
    """The manifest but for what a release changes: the version that saved it, and so the manifest's own sum."""
    document = json.loads(manifest)
    assert document.pop("crc32")
    document["saved_by"].pop("ckptlab")
    return document


def test_the_golden_step_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    written, golden = files(save(tmp_path, 40, golden_contents())), files(GOLDEN / "step-00000040")
    assert without_version(written.pop("manifest.json")) == without_version(golden.pop("manifest.json"))
    assert written == golden
    assert list_steps(tmp_path)[0].manifest.saved_by["ckptlab"] == ckptlab.__version__


def test_the_golden_step_is_whole_and_loads_bitwise() -> None:
    (step,) = list_steps(GOLDEN)
    assert list(verify(step)) == []
    filled, expected = golden_contents(scale=0.0), golden_contents()
    loaded = load(step.path, lambda manifest, state: filled)
    for part in ("model", "optim", "rank_tensors"):
        for name, tensor in getattr(expected, part).items():
            found = getattr(filled, part)[name]
            assert found.reshape(-1).view(torch.uint8).tolist() == tensor.reshape(-1).view(torch.uint8).tolist(), name
    assert loaded.rank_state == expected.rank_state
    assert {**loaded.state, "lr": None} == {**expected.state, "lr": None}
    assert torch.equal(loaded.state["lr"], expected.state["lr"])
