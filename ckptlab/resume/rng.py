"""The global random generators of this process: Python's, NumPy's, torch's on the CPU and on the device in use.

`capture` and `restore` are exact; `derive_seed` makes independent seeds from what identifies a use. Drawing from the captured
generators is never needed to save them, so a save disturbs nothing.
"""

import hashlib
import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ckptlab.errors import ResumeError

T = TypeVar("T")
MAX_POSITION = 624  # words of the Mersenne twister
TORCH, CUDA, PYTHON, NUMPY = "rng::torch", "rng::cuda", "rng::python", "rng::numpy"


def capture() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the generators' states as tensors (bytes of torch's, 624 words of the Mersenne twisters) and as plain values."""
    version, (*words, position), gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=False)
    tensors = {
        TORCH: torch.get_rng_state(),
        PYTHON: torch.from_numpy(np.array(words, dtype=np.uint32)),
        NUMPY: torch.from_numpy(numpy_state["state"]["key"].copy()),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has no types for it
        tensors[CUDA] = torch.cuda.get_rng_state()
    values = {
        "python": {"version": version, "position": position, "gauss": gauss},
        "numpy": {
            "position": int(numpy_state["state"]["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
    }
    return tensors, values


def restore(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Put the generators back into what `capture` returned.

    Raises:
        ResumeError: a position that no Mersenne twister has; NumPy would take it, and crash later.
    """
    if not all(0 <= values[library]["position"] <= MAX_POSITION for library in ("python", "numpy")):
        raise ResumeError(f"not a random state: positions {values}, expected 0 to {MAX_POSITION}; do not use this step")
    torch.set_rng_state(tensors[TORCH])
    if CUDA in tensors:
        torch.cuda.set_rng_state(tensors[CUDA])
    python, numpy_values = values["python"], values["numpy"]
    random.setstate((python["version"], (*tensors[PYTHON].tolist(), python["position"]), python["gauss"]))
    state = {"key": tensors[NUMPY].numpy(), "pos": numpy_values["position"]}
    np.random.set_state(
        {"bit_generator": "MT19937", "state": state, "has_gauss": numpy_values["has_gauss"], "gauss": numpy_values["gauss"]}
    )


def reseed(seed: int) -> None:
    """Seed all of them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def undisturbed(work: Callable[[], T]) -> T:
    """Do `work` and put the generators back to where they were before it."""
    before = capture()
    try:
        return work()
    finally:
        restore(*before)


def derive_seed(*parts: int | str) -> int:
    """Return a seed of 63 bits from what it is for: the first bytes of SHA-256 of the parts, so that no two uses share one."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1
