"""A model's tensors by canonical names: what Hugging Face and the next run expect, whatever wraps the model now."""

from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from ckptlab.errors import UsageError

WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module"}  # of torch.compile and of activation checkpointing


def tensors_of(model: Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return parameters and persistent buffers by name, and further names of tied ones, each to its first name.

    What is tied is told by identity: two names are one tensor if they are one object. Equal memory is no tie.

    Raises:
        UsageError: the state dict holds something that is no parameter and no buffer, or two that would have one name.
    """
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[int, str] = {}
    wrapped = {name for name, module in model.named_modules() if isinstance(module, DistributedDataParallel)}
    state_dict = model.state_dict(keep_vars=True)  # the objects themselves; FSDP2 reshards for it
    own = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    for raw, value in state_dict.items():
        name = _canonical(raw.split("."), wrapped)
        if id(value) not in own:
            raise UsageError(
                f"{name!r} in the model's state dict is no parameter or buffer of the model but made for it "
                f"({type(value).__name__}): what is loaded into it would be lost; give its owner to TrainState by a name"
            )
        if name in tensors or name in aliases:
            raise UsageError(
                f"without wrappers' prefixes {raw!r} and another of the model's tensors are called {name!r}; rename one"
            )
        if first.setdefault(id(value), name) == name:
            tensors[name] = value
        else:
            aliases[name] = first[id(value)]
    return tensors, aliases


def _canonical(parts: list[str], wrapped: set[str]) -> str:
    """Leave out what wrappers add: `module` after the name of a DDP module, and `WRAPPERS` anywhere."""
    kept = [
        part
        for number, part in enumerate(parts)
        if part not in WRAPPERS and not (part == "module" and ".".join(parts[:number]) in wrapped)
    ]
    return ".".join(kept)
