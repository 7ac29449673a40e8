"""What the pickles of DeepSpeed may name besides tensors, and what they get for it: plain values, or nothing that is read."""

from collections import Counter
from collections.abc import Callable, Sequence

from ckptlab.interop.unpickle import Classes, Enumeration, Fixed


class Fragment(metaclass=Fixed):
    """Stands in for `fragment_address`: where a rank's part of a parameter begins in its partition, and its length."""

    start: int
    numel: int


class Unread(metaclass=Fixed):
    """Stands in for a class whose values are not read, such as a loss scaler."""


def untyped(rebuild: Callable[..., object], _: object, arguments: Sequence[object], __: object) -> object:
    """Stand in for what makes a tensor with attributes, as stage 3 saves it: the tensor alone."""
    return rebuild(*arguments)


CLASSES: Classes = {
    ("deepspeed.runtime.zero.config", "ZeroStageEnum"): Enumeration(
        {"disabled": 0, "optimizer_states": 1, "gradients": 2, "weights": 3}
    ),
    ("deepspeed.utils.tensor_fragment", "fragment_address"): Fragment,
    ("deepspeed.runtime.fp16.loss_scaler", "LossScaler"): Unread,
    ("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"): Unread,
    ("deepspeed.checkpoint.universal_checkpoint", "SubparamShape"): Unread,
    ("torch._tensor", "_rebuild_from_type_v2"): untyped,
    ("torch", "Tensor"): Unread,
    ("torch.nn.parameter", "Parameter"): Unread,
    ("collections", "Counter"): Counter,  # the milestones of a scheduler
}
