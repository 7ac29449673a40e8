"""What of a DeepSpeed run is no large tensor: its step, param groups and scheduler, and what a step cannot take over."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckptlab.checkpoint.tensor_bytes import to_exact
from ckptlab.errors import FormatError, LoadError
from ckptlab.format.exact import encode
from ckptlab.interop.deepspeed_files import Files, member
from ckptlab.interop.torch_archive import SavedTensor, with_tensors
from ckptlab.interop.torch_file import TorchFile

SCHEDULER = "scheduler"  # the name that TrainState's examples give it
COUNTED = {"params", "step"}  # of a param group: what TrainState knows from elsewhere
ENGINE = {  # what DeepSpeed itself puts beside the client's state
    "module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes", "shared_params", "frozen_param_fragments",
    "lr_scheduler", "data_sampler", "random_ltd", "skipped_steps", "global_steps", "global_samples", "dp_world_size",
    "mp_world_size", "checkpoint_parallel_dimensions", "ds_config", "ds_version", "universal_checkpoint_info",
}  # fmt: skip


def state_of(files: Files, groups: Mapping[str, int]) -> dict[str, Any]:
    """Return what `state.json` will hold, given each trained parameter's group."""
    first, scheduler = files.model[0], _scheduler(files.model[0])
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
    return member(files.optim[0], inner, "param_groups", list, of=Mapping) if isinstance(inner, Mapping) else None


def left(files: Files) -> Iterator[str]:
    """Yield, in words, what a step will not have of it."""
    value, part = files.model[0].value, files.parts[0]
    module = member(files.model[0], value, "module", Mapping)
    yield from (f"the client state {name!r}" for name in sorted(value.keys() - ENGINE, key=str))
    yield "ds_config: batch size, gradient clipping, precision and whatever else DeepSpeed was told"
    yield f"the place in the data: {value.get('global_samples')} samples were trained on"
    if part.get("dynamic_loss_scale"):
        yield "the loss scaler of fp16; the weights go on in float32"
    yield from (f"{name!r} of the module, which is no tensor" for name in module if not isinstance(module[name], SavedTensor))
    if files.stage > 1 and "frozen_param_shapes" in value and value["frozen_param_shapes"] is None:
        yield "frozen parameters, if there are any: it was saved with exclude_frozen_parameters; take them from where they were"
    for name in ("data_sampler", "random_ltd"):
        if value.get(name) is not None:
            yield f"the state of {name}"
    if value.get("lr_scheduler") is not None and _scheduler(files.model[0]) is None:
        yield "the state of lr_scheduler, which is no scheduler of torch with plain values: set yours to the step yourself"
    if param_groups(files) is None:
        yield "the settings of the param groups, which elastic_checkpoint does not save: give the optimizer the same ones"
    if any(not group.get("bias_correction", True) for group in param_groups(files) or ()):
        yield "bias_correction=False, which torch's AdamW does not have: further steps will not be those that DeepSpeed makes"


def check_optimizer(files: Files) -> None:
    """Refuse another optimizer than Adam."""
    if (name := _optimizer_told(files)[0]) not in ("", "adam", "adamw"):
        raise LoadError(f"{files.folder}: the optimizer is {name}; Adam and AdamW are read")
    if any("decoupled_weight_decay" in group and "amsgrad" not in group for group in param_groups(files) or ()):
        raise LoadError(f"{files.folder}: the optimizer has other settings than Adam, as RAdam does; Adam and AdamW are read")


def _class_of(files: Files) -> str | None:
    """Tell Adam from AdamW by torch's own mark in the param groups, else by DeepSpeed's configuration."""
    groups = param_groups(files) or ()
    if any(not group.get("bias_correction", True) for group in groups):
        return None
    if marks := [mark for group in groups if (mark := group.get("decoupled_weight_decay")) is not None]:
        return None if any(mark != marks[0] for mark in marks) else "AdamW" if marks[0] else "Adam"
    name, told = _optimizer_told(files)
    return {"adamw": "AdamW", "adam": "AdamW" if told.get("adam_w_mode", True) else "Adam"}.get(name)


def _optimizer_told(files: Files) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the arguments of the optimizer, where DeepSpeed made it itself."""
    config = files.model[0].value.get("ds_config")
    told = config.get("optimizer") if isinstance(config, Mapping) else None
    if not isinstance(told, Mapping):
        return "", {}
    return str(told.get("type", "")).lower(), member(files.model[0], told, "params", Mapping, absent={})


def _settings(files: Files, num_groups: int) -> list[dict[str, Any]]:
    """Return each param group's settings, as an optimizer of torch has them."""
    groups = param_groups(files)
    if groups is None:
        return [{} for _ in range(num_groups)]
    settings = [{name: _exact(files.optim[0], value) for name, value in _settings_of(group)} for group in groups]
    for group, read in zip(groups, settings, strict=True):
        if unknown := [name for name, value in _settings_of(group) if value is not None and read[name] is None]:
            raise LoadError(f"{files.optim[0].path}: the param groups' {unknown[0]!r} is no plain value")
    return settings


def _settings_of(group: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in group.items() if name not in COUNTED]


def _scheduler(file: TorchFile) -> Any:
    """Return the state of a scheduler of torch; None of DeepSpeed's own, from which torch's does not go on."""
    state = _exact(file, file.value.get("lr_scheduler"))
    return state if isinstance(state, dict) and "last_epoch" in state else None


def _exact(file: TorchFile, value: Any) -> Any:
    """Return a value with its small tensors read, or None when a step's exact JSON cannot hold it."""
    try:
        plain = with_tensors(value, file.small)
        encode(to_exact(plain))
    except FormatError:
        return None
    return plain
