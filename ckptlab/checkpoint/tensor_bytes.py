"""A tensor's values as bytes, whatever device and strides they have; and small tensors inside a state."""

from typing import Any

import torch
from torch import Tensor

from ckptlab.format.dtypes import ITEM_BYTES, numpy_dtype
from ckptlab.format.exact import ExactTensor

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
        self._memory = self._flat.numpy().data if self._flat.device.type == "cpu" else None
        self.num_bytes = self._flat.numel()

    def read(self, begin: int, end: int) -> memoryview:
        """Return the bytes from `begin` to `end`; of a device's memory, a copy."""
        if self._memory is not None:
            return self._memory[begin:end]
        return self._flat[begin:end].cpu().numpy().data

    def write(self, begin: int, data: memoryview) -> None:
        """Put `data` at `begin`."""
        if self._memory is not None:
            self._memory[begin : begin + len(data)] = data
        else:
            self._flat[begin : begin + len(data)].copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))

    def flush(self) -> None:
        """Carry what was written into the tensor, where its memory could not be written directly."""
        if self._contiguous is not self._tensor:
            self._tensor.copy_(self._contiguous)


class CastBytes(TensorBytes):
    """Takes the bytes of a tensor of another floating dtype, `dtype`, and converts them as torch does, part by part."""

    def __init__(self, tensor: Tensor, dtype: torch.dtype) -> None:
        super().__init__(tensor)
        self._dtype = dtype
        self._rest = b""  # the first bytes of a value that ends in the next part

    def write(self, begin: int, data: memoryview) -> None:
        """Put values whose bytes begin at `begin` in a tensor of the other dtype; the parts of a run come in order."""
        begin, joined = begin - len(self._rest), bytearray(self._rest + data)
        num_values = len(joined) // self._dtype.itemsize
        self._rest = bytes(joined[num_values * self._dtype.itemsize :])
        if num_values:
            values = TensorBytes(torch.frombuffer(joined, dtype=self._dtype, count=num_values).to(self._tensor.dtype))
            place = begin // self._dtype.itemsize * self._tensor.dtype.itemsize
            super().write(place, values.read(0, values.num_bytes))


def to_exact(value: Any) -> Any:
    """Return `value` with every tensor in it as an `ExactTensor` and every kind of dict as a dict, ready to be encoded."""
    if isinstance(value, Tensor):
        data = bytes(TensorBytes(value.detach()).read(0, value.numel() * value.element_size()))
        return ExactTensor(DTYPE_NAMES[value.dtype], tuple(value.shape), data)
    if isinstance(value, dict):
        return {key: to_exact(item) for key, item in value.items()}
    return type(value)(to_exact(item) for item in value) if type(value) in (list, tuple) else value


def from_exact(value: Any) -> Any:
    """Return `value` with every `ExactTensor` in it as a tensor on the CPU."""
    if isinstance(value, ExactTensor):
        tensor = torch.empty(value.shape, dtype=DTYPES[value.dtype])
        TensorBytes(tensor).write(0, memoryview(value.data))
        return tensor
    if isinstance(value, dict):
        return {key: from_exact(item) for key, item in value.items()}
    return type(value)(from_exact(item) for item in value) if type(value) in (list, tuple) else value
