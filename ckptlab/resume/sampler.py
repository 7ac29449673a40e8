"""Which samples make up which global batch: a pure function of (seed, epoch, position), for any number of ranks.

Global batch g of an epoch is `order(seed, epoch)[g * G : (g + 1) * G]`. Rank r of W takes the r-th of W equal contiguous parts
of it, cut into `accumulate` micro-batches; on a mesh with more axes, r and W are those of the data axis. So another number of
ranks deals out the same global batches.

With 12 samples, G=4, two ranks and order 7 2 9 4 | 0 11 5 1 | 3 8 6 10: rank 0 trains on 7 2, then 0 11, then 3 8.
"""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import Sampler

from ckptlab.checkpoint.collectives import rank_and_world_size
from ckptlab.errors import UsageError
from ckptlab.resume.rng import derive_seed


def order(num_samples: int, seed: int, epoch: int) -> Tensor:
    """Return the order of all samples in an epoch: their indices, int64."""
    generator = torch.Generator().manual_seed(derive_seed("order", seed, epoch))
    return torch.randperm(num_samples, generator=generator)


def sample_generator(seed: int, epoch: int, index: int) -> torch.Generator:
    """Return the generator for the random transforms of one sample: the same in any worker of any rank, whoever asks when."""
    return torch.Generator().manual_seed(derive_seed("sample", seed, epoch, index))


class DataMesh(Protocol):
    """What a sampler asks of a `DeviceMesh` of one axis. A Protocol, because `resume` does not import torch.distributed."""

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        ...

    def size(self) -> int:
        """Return how many ranks the axis has."""
        ...

    def get_local_rank(self) -> int:
        """Return this rank's place on it."""
        ...


class ResumableSampler(Sampler[list[int]]):
    """The `batch_sampler` of a `DataLoader` whose run can go on in the middle of an epoch, on any number of ranks.

    Iterating yields this rank's micro-batches of the epoch from the position on. What is left of an epoch after its last full
    global batch is left out. It never moves by itself: the position is what was trained on, not what workers have fetched.

    Attributes:
        num_samples: how many samples the data set has.
        global_batch: samples in one optimizer step, over all ranks.
        seed: the seed of the order.
        accumulate: micro-batches that a rank takes for one optimizer step.
        data_mesh: a 1-D `DeviceMesh`, the axis along which samples differ, such as `mesh["data"]`; None: over all ranks.
            Under tensor parallel it is needed: ranks that share a layer must train on the same samples.
        epoch: the epoch that the next iteration deals out.
        position: samples of it that the world has trained on; a multiple of `global_batch`.
    """

    def __init__(
        self, num_samples: int, *, global_batch: int, seed: int, accumulate: int = 1, data_mesh: DataMesh | None = None
    ) -> None:
        self.num_samples, self.global_batch, self.seed, self.accumulate = num_samples, global_batch, seed, accumulate
        self.data_mesh = data_mesh
        self.epoch = self.position = 0
        if min(num_samples, global_batch, accumulate) < 1 or global_batch > num_samples:
            raise UsageError(
                f"global_batch={global_batch}, accumulate={accumulate} of {num_samples} samples: no full batch to train on"
            )
        if data_mesh is not None and data_mesh.ndim != 1:
            raise UsageError(
                f'data_mesh has {data_mesh.ndim} axes; give the one along which samples differ, such as mesh["data"]. If they '
                f'differ along more, flatten these first: mesh["replicate", "shard"]._flatten()'
            )
        self._micro_batch()

    @property
    def end(self) -> int:
        """The position at which an epoch is over."""
        return self.num_samples - self.num_samples % self.global_batch

    def __len__(self) -> int:
        """Return the micro-batches that are left of the epoch, for one rank."""
        return (self.end - self.position) // self.global_batch * self.accumulate

    def __iter__(self) -> Iterator[list[int]]:
        (rank, _), micro_batch = self.data_rank_and_size(), self._micro_batch()
        samples = order(self.num_samples, self.seed, self.epoch)
        for begin in range(self.position, self.end, self.global_batch):
            for number in range(rank * self.accumulate, (rank + 1) * self.accumulate):
                first = begin + number * micro_batch
                yield samples[first : first + micro_batch].tolist()

    def data_rank_and_size(self) -> tuple[int, int]:
        """Return this rank's number among those that are dealt different samples, and how many these are."""
        if self.data_mesh is None:
            return rank_and_world_size()
        return self.data_mesh.get_local_rank(), self.data_mesh.size()

    def _micro_batch(self) -> int:
        _, world_size = self.data_rank_and_size()
        size, rest = divmod(self.global_batch, world_size * self.accumulate)
        if rest:
            raise UsageError(
                f"global_batch={self.global_batch} cannot be dealt out evenly to {world_size} ranks in {self.accumulate} "
                f"micro-batches each; take a multiple of {world_size * self.accumulate}, or another number of ranks"
            )
        return size
