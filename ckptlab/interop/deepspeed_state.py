"""What of a DeepSpeed run is no large tensor: its step, param groups and scheduler, and what a step cannot take over."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckptlab.checkpoint.tensor_bytes import to_exact
from ckptlab.errors import FormatError, LoadError
from ckptlab.format.exact import MAX_TENSOR_BYTES, encode
from ckptlab.interop.deepspeed_files import Files, member
from ckptlab.interop.torch_archive import SavedTensor
from ckptlab.interop.torch_file import TorchFile

SCHEDULER = "scheduler"  # the name that TrainState's examples give it
COUNTED = {"params", "step"}  # of a param group: what TrainState knows from elsewhere
ENGINE = {  # what DeepSpeed itself puts beside the client's state
    "module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes", "shared_params", "frozen_param_fragments",
    "lr_scheduler", "data_sampler", "random_ltd", "skipped_steps", "global_steps", "global_samples", "dp_world_size",
    "mp_world_size", "checkpoint_parallel_dimensions", "ds_config", "ds_version", "universal_checkpoint_info",
}  # fmt: skip
AUTO_EP = {"ds_autoep_layers", "autoep_layers", "ds_zero_partition_groups"}


def state_of(files: Files, groups: Mapping[str, int]) -> dict[str, Any]:
    """Return what `state.json` will hold, given each trained parameter's group."""
    first = files.model[0]
    scheduler = _exact(first, first.value.get("lr_scheduler"))
    return {
        "step": member(first, first.value, "global_steps", int),
        "epoch": 0,
        "position": 0,
        "data": None,
        "optimizer": {"class": _class_of(files), "groups": _settings(files, 1 + max(groups.values(), default=0))},
        "groups": dict(groups),
        "values": {},
        "stateful": {} if scheduler is None else {SCHEDULER: scheduler},
    }


def param_groups(files: Files) -> Sequence[Mapping[str, Any]] | None:
    """Return the param groups as they were saved; None in a checkpoint of `elastic_checkpoint`, which has none."""
    part = files.parts[0]
    inner = part if files.is_universal else part.get("base_optimizer_state", part.get("optimizer_state_dict"))
    return member(files.optim[0], inner, "param_groups", list) if isinstance(inner, Mapping) else None


def left(files: Files) -> Iterator[str]:
    """Yield, in words, what a step will not have of it."""
    value, part = files.model[0].value, files.parts[0]
    saved = {name for name, item in value["module"].items() if isinstance(item, SavedTensor)}
    yield from (f"the client state {name!r}" for name in sorted(value.keys() - ENGINE, key=str))
    yield "ds_config: batch size, gradient clipping, precision and whatever else DeepSpeed was told"
    yield f"the place in the data: {value.get('global_samples')} samples were trained on"
    if part.get("dynamic_loss_scale"):
        yield "the loss scaler of fp16; the weights go on in float32"
    yield from (f"{name!r} of the module, which is no tensor" for name in sorted(value["module"].keys() - saved))
    for name in ("data_sampler", "random_ltd"):
        if value.get(name) is not None:
            yield f"the state of {name}"
    if value.get("lr_scheduler") is not None and _exact(files.model[0], value["lr_scheduler"]) is None:
        yield "the state of lr_scheduler, in which there is more than plain values"
    if param_groups(files) is None:
        yield "the settings of the param groups, which elastic_checkpoint does not save: give the optimizer the same ones"
    if any(not group.get("bias_correction", True) for group in param_groups(files) or ()):
        yield "bias_correction=False, which torch's AdamW does not have: further steps will not be those that DeepSpeed makes"


def check_known(files: Files) -> None:
    """Refuse what says that parameters lie in another way than ZeRO lays them out, or of another optimizer than Adam."""
    for file, value in [(file, file.value) for file in files.model] + list(zip(files.optim, files.parts, strict=True)):
        if found := AUTO_EP & value.keys():
            raise LoadError(f"{file.path}: {found.pop()}: experts are spread over the ranks, which is not read")
    if (name := _optimizer_told(files)[0]) not in ("", "adam", "adamw"):
        raise LoadError(f"{files.folder}: the optimizer is {name}; Adam and AdamW are read")


def _class_of(files: Files) -> str | None:
    """Tell Adam from AdamW by torch's own mark in the param groups, else by DeepSpeed's configuration."""
    groups = param_groups(files) or ()
    if any(not group.get("bias_correction", True) for group in groups):
        return None
    if marks := {group.get("decoupled_weight_decay") for group in groups} - {None}:
        return None if len(marks) > 1 else "AdamW" if marks.pop() else "Adam"
    name, told = _optimizer_told(files)
    return {"adamw": "AdamW", "adam": "AdamW" if told.get("adam_w_mode", True) else "Adam"}.get(name)


def _optimizer_told(files: Files) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the arguments of the optimizer, where DeepSpeed made it itself."""
    config = files.model[0].value.get("ds_config")
    told = config.get("optimizer") if isinstance(config, Mapping) else None
    if not isinstance(told, Mapping):
        return "", {}
    return str(told.get("type", "")).lower(), told.get("params") or {}


def _settings(files: Files, num_groups: int) -> list[dict[str, Any]]:
    """Return each param group's settings, as an optimizer of torch has them."""
    groups = param_groups(files)
    if groups is None:
        return [{} for _ in range(num_groups)]
    settings = [{name: value for name, value in group.items() if name not in COUNTED} for group in groups]
    for group in settings:
        if unknown := [name for name, value in group.items() if value is not None and _exact(files.optim[0], value) is None]:
            raise LoadError(f"{files.optim[0].path}: the param groups' {unknown[0]!r} is no plain value")
    return settings


def _exact(file: TorchFile, value: Any) -> Any:
    """Return a value with its small tensors read, or None when a step's exact JSON cannot hold it."""
    try:
        plain = _with_tensors(file, value)
        encode(to_exact(plain))
    except FormatError:
        return None
    return plain


def _with_tensors(file: TorchFile, value: Any) -> Any:
    if isinstance(value, SavedTensor) and value.spec.num_bytes <= MAX_TENSOR_BYTES:
        return file.small(value)
    if isinstance(value, dict):
        return {key: _with_tensors(file, item) for key, item in value.items()}
    return type(value)(_with_tensors(file, item) for item in value) if type(value) in (list, tuple) else value
