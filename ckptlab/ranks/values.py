"""What a rank hands to a process without torch: plain values, leaf by leaf. Rank side, pure."""

import ml_dtypes
import numpy as np
import torch

MOST_BYTES = 64 << 20  # of one value; the notebook's process would have it from every rank
_PLAIN = (type(None), bool, int, float, str)
_BITS = {1: torch.uint8, 2: torch.int16}


def portable(value: object) -> object:
    """Turn `value` into JSON values and NumPy arrays.

    Dicts, lists and tuples are kept, tensors become arrays (of a DTensor the local part), any other leaf becomes its `repr`.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        return _array(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return np.asarray(value)  # of a subclass that only the rank knows, the array
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return value
    if isinstance(value, dict):
        return {_key(key): portable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [portable(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return repr(value)


def num_bytes(value: object) -> int:
    """Tell about how many bytes a portable value has."""
    if isinstance(value, np.ndarray | np.generic):
        return value.nbytes
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(num_bytes, value.values()))
    return sum(map(num_bytes, value)) if isinstance(value, list | tuple) else 8


def _key(key: object) -> object:
    if isinstance(key, tuple):
        return tuple(_key(part) for part in key)
    return key if type(key) in _PLAIN else repr(key)


def _array(tensor: torch.Tensor) -> object:
    for unwrap in ("to_local", "wait"):  # a DTensor; a collective's result that is still on its way
        tensor = getattr(tensor, unwrap, lambda tensor=tensor: tensor)()
    try:
        local = tensor.detach().cpu().resolve_conj().resolve_neg()
        numpy_name = str(local.dtype).removeprefix("torch.")
        if hasattr(ml_dtypes, numpy_name):
            return local.view(_BITS[local.element_size()]).numpy().view(getattr(ml_dtypes, numpy_name))
        return local.numpy()
    except (TypeError, RuntimeError):  # no bytes (meta), sparse, quantized
        return repr(tensor)
