"""The text as samples for a `DataLoader`."""

import torch
from torch.utils.data import Dataset

from ckptlab.train.text import CONTEXT, Text


class Windows(Dataset[tuple[int, torch.Tensor]]):
    """Sample i is `(i, window)`: the bytes from i * CONTEXT to (i + 1) * CONTEXT, both included, as int64[CONTEXT + 1].

    The first CONTEXT bytes of a window are the input and the last CONTEXT the targets. The number comes along so that a run can
    record on which samples it really trained. `fingerprint` goes into the manifest: a resume on another text is an error.
    """

    def __init__(self, text: Text) -> None:
        self.fingerprint, self._num_samples = text.fingerprint, text.num_samples
        self._bytes = torch.frombuffer(bytearray(text.data), dtype=torch.uint8)

    def __len__(self) -> int:
        return self._num_samples

    def __getitem__(self, number: int) -> tuple[int, torch.Tensor]:
        begin = number * CONTEXT
        return number, self._bytes[begin : begin + CONTEXT + 1].long()
