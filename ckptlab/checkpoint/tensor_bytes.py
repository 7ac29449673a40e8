"""A tensor's values as bytes, whatever device and strides they have; and small tensors inside a state."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Buffer, Parameter

from ckptlab.format.dtypes import ITEM_BYTES, numpy_dtype
from ckptlab.format.exact import ExactTensor
from ckptlab.format.strips import Rows, Strip, rows

DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, numpy_dtype(name).name) for name in ITEM_BYTES
}  # NumPy's names are torch's
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class TensorBytes:
    """The bytes of a tensor in row-major order, to be read and written in parts.

    On the CPU a contiguous tensor's own memory is used, without a copy. A tensor on another device is copied part by part; a
    tensor that is not contiguous is copied once, and `flush` carries what was written back.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._contiguous = tensor if tensor.is_contiguous() else tensor.contiguous()
        self._flat = self._contiguous.reshape(-1).view(torch.uint8)
        self._memory = self._flat.numpy() if self._flat.device.type == "cpu" else None
        self.num_bytes = self._flat.numel()

    def read(self, begin: int, end: int) -> memoryview:
        """Return the bytes from `begin` to `end`; of a device's memory, a copy."""
        return self.rows(Strip(0, begin, end - begin)).reshape(-1).data

    def rows(self, strip: Strip) -> Rows:
        """Return the bytes of a strip's target; of a device's memory, a copy."""
        if self._memory is not None:
            return rows(self._memory, strip.target, strip.length, strip.num_runs, strip.target_step)
        return self._on_device(strip).cpu().numpy()

    def put(self, strip: Strip, data: Rows) -> None:
        """Put `data` where the strip's target is."""
        if self._memory is not None:
            self.rows(strip)[...] = data
        else:
            self._on_device(strip).copy_(torch.from_numpy(data.copy()))

    def flush(self) -> None:
        """Carry what was written into the tensor, where its memory could not be written directly."""
        if self._contiguous is not self._tensor:
            self._tensor.copy_(self._contiguous)

    def _on_device(self, strip: Strip) -> Tensor:
        return self._flat.as_strided((strip.num_runs, strip.length), (strip.target_step, 1), strip.target)


class CastBytes(TensorBytes):
    """Takes the bytes of a tensor of another floating dtype, `dtype`, and converts them as torch does, part by part."""

    def __init__(self, tensor: Tensor, dtype: torch.dtype) -> None:
        super().__init__(tensor)
        self._dtype = dtype
        self._rest = b""  # the first bytes of a value that goes on in the next part

    def put(self, strip: Strip, data: Rows) -> None:
        """Put values of the other dtype where the strip's target is in such a tensor; the parts of a run come in order."""
        source, target = self._dtype.itemsize, self._tensor.dtype.itemsize
        begin, joined = strip.target - len(self._rest), self._rest + data.tobytes()
        num_values = len(joined) // source
        self._rest = joined[num_values * source :]
        if num_values:
            values = torch.frombuffer(bytearray(joined), dtype=self._dtype, count=num_values).to(self._tensor.dtype)
            converted = values.view(torch.uint8).numpy().reshape(strip.num_runs, -1)
            step = strip.target_step // source * target
            super().put(Strip(0, begin // source * target, converted.shape[1], strip.num_runs, 0, step), converted)


def to_exact(value: Any) -> Any:
    """Return `value` with every tensor in it as an `ExactTensor` and every kind of dict as a dict, ready to be encoded."""
    if type(value) in (Tensor, Parameter, Buffer) and value.dtype in DTYPE_NAMES and value.layout is torch.strided:
        data = bytes(TensorBytes(value.detach()).read(0, value.numel() * value.element_size()))
        return ExactTensor(DTYPE_NAMES[value.dtype], tuple(value.shape), data)
    if isinstance(value, dict):
        return {key: to_exact(item) for key, item in value.items()}
    return type(value)(to_exact(item) for item in value) if type(value) in (list, tuple) else value


def from_exact(value: Any) -> Any:
    """Return `value` with every `ExactTensor` in it as a tensor on the CPU."""
    if isinstance(value, ExactTensor):
        tensor = torch.empty(value.shape, dtype=DTYPES[value.dtype])
        TensorBytes(tensor).put(Strip(0, 0, len(value.data)), np.frombuffer(value.data, np.uint8))
        return tensor
    if isinstance(value, dict):
        return {key: from_exact(item) for key, item in value.items()}
    return type(value)(from_exact(item) for item in value) if type(value) in (list, tuple) else value
