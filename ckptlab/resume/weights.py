"""The weights of a step into a model, and nothing else: to fine-tune, to evaluate, to start another run from."""

from collections.abc import Mapping

from torch.nn import Module

from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.load import Loaded, load
from ckptlab.resume.model import tensors_of
from ckptlab.storage import Place


def load_weights(
    step: str | Place, model: Module, *, rename: Mapping[str, str] | None = None, cast: bool = False, strict: bool = True
) -> Loaded:
    """Fill the parameters and buffers of `model` from a step, from however many ranks saved it. Every rank calls it.

    Of a buffer that differed between the ranks that saved, every rank gets rank 0's.

    Args:
        step: the directory of the step, or its address in an object store: "s3://bucket/runs/mine/step-00010000".
        model: as it is: sharded, wrapped, compiled. Nothing changes in it before all that is wanted was found right.
        rename: the model's name to the name that the step has it by, both without wrappers' prefixes.
        cast: read a floating dtype into another one, rounded as torch does.
        strict: refuse names that only the model or only the step has. Told otherwise, what the step lacks stays as it is;
            `missing["model"]` and `unexpected["model"]` of the result tell what that was.

    Returns:
        What `load` returns: the step's manifest and state, and the names that were left over.

    Raises:
        CorruptError: a block is not as it was written.
        LoadError: anything else, on every rank alike.
    """

    def wanted(*_: object) -> Contents:
        tensors, aliases = tensors_of(model)
        return Contents(model=tensors, aliases=aliases)

    return load(
        step,
        wanted,
        model_only=True,
        rename=rename,
        cast=cast,
        strict=strict,
    )
