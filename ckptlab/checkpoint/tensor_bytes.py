"""A tensor's values as bytes, whatever device and strides they have; and small tensors inside a state."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Buffer, Parameter

from ckptlab.format.dtypes import ITEM_BYTES, numpy_dtype
from ckptlab.format.exact import ExactTensor
from ckptlab.format.strips import Rows, Strip

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
        self._is_on_cpu = self._flat.device.type == "cpu"
        self.num_bytes = self._flat.numel()

    def read(self, begin: int, end: int) -> memoryview:
        """Return the bytes from `begin` to `end`; of a device's memory, a copy."""
        return self._flat[begin:end].cpu().numpy().data

    def rows(self, strip: Strip) -> Rows:
        """Return the bytes of a strip, from its local begin; of a device's memory, a copy."""
        return self._view(strip).cpu().numpy()

    def memory(self, strip: Strip) -> memoryview | None:
        """Return the memory of a strip of one run, to be written into; None where it is a device's."""
        return self._flat[strip.local_begin :][: strip.length].numpy().data if self._is_on_cpu else None

    def put(self, strip: Strip, data: Rows) -> None:
        """Put `data` where the strip stands locally."""
        if self._is_on_cpu:
            self._view(strip).numpy()[...] = data
        else:
            self._view(strip).copy_(torch.from_numpy(data.copy()))

    def flush(self) -> None:
        """Carry what was written into the tensor, where its memory could not be written directly."""
        if self._contiguous is not self._tensor:
            self._tensor.copy_(self._contiguous)

    def _view(self, strip: Strip) -> Tensor:
        span = self._flat[strip.local_begin :][: (strip.num_runs - 1) * strip.local_step + strip.length]
        return span.unfold(0, strip.length, max(strip.local_step, 1))


class CastBytes:
    """Takes the bytes of a tensor of another floating dtype, `dtype`, into `tensor`, converted as torch does, part by part."""

    def __init__(self, tensor: Tensor, dtype: torch.dtype) -> None:
        self._bytes = TensorBytes(tensor)
        self._dtype, self._own_dtype = dtype, tensor.dtype
        self._rest = b""  # the first bytes of a value that goes on in the next part

    def put(self, strip: Strip, data: Rows) -> None:
        """Put values where the strip stands in a tensor of the other dtype; the parts of a run come in order."""
        theirs, own = self._dtype.itemsize, self._own_dtype.itemsize
        begin, joined = strip.local_begin - len(self._rest), self._rest + data.tobytes()
        num_values = len(joined) // theirs
        self._rest = joined[num_values * theirs :]
        if num_values:
            values = torch.frombuffer(bytearray(joined), dtype=self._dtype, count=num_values).to(self._own_dtype)
            converted = values.view(torch.uint8).numpy().reshape(strip.num_runs, -1)
            step = strip.local_step // theirs * own
            place = Strip(0, begin // theirs * own, converted.shape[1], strip.num_runs, local_step=step)
            self._bytes.put(place, converted)

    def flush(self) -> None:
        """Carry what was put into the tensor."""
        self._bytes.flush()


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
        TensorBytes(tensor).put(Strip(0, 0, len(value.data)), np.frombuffer(value.data, np.uint8)[None])
        return tensor
    if isinstance(value, dict):
        return {key: from_exact(item) for key, item in value.items()}
    return type(value)(from_exact(item) for item in value) if type(value) in (list, tuple) else value
