"""Checkpoints that DeepSpeed writes here and now, opened and compared with what it says of them itself."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from foreign_tensors import expected_of, following_of, same, stepped, tensors_of

from ckptlab.interop.deepspeed import open_checkpoint

pytestmark = pytest.mark.libraries
SCRIPT = Path(__file__).with_name("deepspeed_fixtures.py")
CASES = ("stage1-2ranks-bf16-sums-fp32", "stage2-2ranks-universal", "stage3-2ranks-fp32", "stage3-2ranks-universal")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the cases on two ranks. That DeepSpeed is not installed is a failure where CKPTLAB_REQUIRE asks for libraries."""
    if find_spec("deepspeed") is None:
        refuse = pytest.fail if "libraries" in os.environ.get("CKPTLAB_REQUIRE", "").split(",") else pytest.skip
        refuse("needs deepspeed: pip install --constraint constraints.txt --editable '.[libraries]'")
    folder = tmp_path_factory.mktemp("deepspeed")
    done = subprocess.run([sys.executable, SCRIPT, folder, *CASES], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_is_bit_for_bit_what_deepspeed_says_of_what_it_wrote(case: str, made: Path) -> None:
    expected = expected_of(made / case)
    steps = {f"step::{name}": torch.tensor(3.0) for name in ("embed.weight", "hidden.bias", "hidden.weight", "scale")}
    assert same(tensors_of(open_checkpoint(made / case)), expected | steps)


@pytest.mark.parametrize("case", CASES)
def test_a_further_step_of_a_plain_adamw_is_bit_for_bit_the_one_that_deepspeed_made(case: str, made: Path) -> None:
    gradients, weights = following_of(made / case)
    assert same(stepped(open_checkpoint(made / case), gradients), weights)
