"""What a run is made of, as one object: what is trained, how far it is, and the loop over what is left.

`steps` owns the loop, because exactness depends on its order: the generators are put back around every `iter(loader)`, which
draws from them; the resumed ones are set before the first batch is fetched; `position` moves when a window is handed out.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ckptlab.checkpoint.collectives import rank_and_world_size
from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.load import Loaded
from ckptlab.checkpoint.tensors import mesh_of
from ckptlab.errors import ResumeError, SaveError, UsageError
from ckptlab.format.manifest import CONVERTED_FROM, Manifest
from ckptlab.resume import conditions, rng
from ckptlab.resume import optimizer as optimizers
from ckptlab.resume.model import tensors_of
from ckptlab.resume.sampler import ResumableSampler
from ckptlab.steps.members import compare_members

SAMPLER_LINE = "DataLoader(dataset, batch_sampler=ResumableSampler(len(dataset), global_batch=..., seed=...))"


class Stateful(Protocol):
    """Anything whose state can be taken and given back: schedulers, scalers, counters. A tensor in it has at most 4 KiB."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state, of values that exact JSON can hold."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Take such a state back."""
        ...


class TrainState:
    """A run's model, optimizer, data and everything else that must go on where it stopped.

    Attributes:
        step: optimizer steps whose batches were handed out.
        epoch: the epoch of the last batch.
        position: samples of that epoch that were handed out, over all ranks; at its end the epoch's length.
        stateful: everything else that was given, by name.
    """

    def __init__(
        self,
        *,
        model: Module,
        optimizer: Optimizer,
        loader: DataLoader[Any] | None = None,
        model_files: Mapping[str, Path] | None = None,
        **stateful: Stateful | None,
    ) -> None:
        """Hold together what a run is made of.

        Args:
            model: as it is trained: sharded, wrapped, compiled.
            optimizer: of the model's parameters.
            loader: with a `ResumableSampler` as `batch_sampler`; None for a caller that feeds itself and counts `step`.
            model_files: file name to a file to be copied into `model/`, such as `config.json`.
            **stateful: everything else by its name: `scheduler=`, `scaler=`. With a `scaler`, which may skip a step, a save
                before the optimizer's step is not noticed.
        """
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.step = self.epoch = self.position = 0
        self._model_files = dict(model_files or {})
        self.stateful = {name: value for name, value in stateful.items() if value is not None}
        if stateless := [name for name, value in self.stateful.items() if not hasattr(value, "load_state_dict")]:
            raise UsageError(f"{stateless} have no state_dict and load_state_dict; TrainState takes what has them by name")
        self._sampler = None if loader is None else _sampler_of(loader)
        self._resumed_rng: tuple[Mapping[str, Tensor], Mapping[str, Any]] | None = None
        self._pending_step = False  # a window was handed out, and the optimizer did not step yet
        optimizer.register_step_post_hook(self._on_step)

    @property
    def epoch_ends(self) -> bool:
        """Whether the batches that were handed out last are the last of their epoch."""
        return self._sampler is not None and self.position >= self._sampler.end

    def steps(self, until: int | None = None) -> Iterator[list[Any]]:
        """Yield the micro-batches of one optimizer step at a time, from where the run is on, up to step `until` in all.

        The body ends with the save, after the optimizer's and every scheduler's step. A data set that has `set_epoch(epoch)` is
        told each epoch before its samples are fetched, which is what `sample_generator` needs.
        """
        loader = self.loader
        if self._sampler is None or loader is None:
            raise UsageError(f"TrainState has no loader to take batches from; give it {SAMPLER_LINE}")
        while until is None or self.step < until:
            if self.epoch_ends:
                self.epoch, self.position = self.epoch + 1, 0
            self._sampler.epoch, self._sampler.position = self.epoch, self.position
            if hasattr(loader.dataset, "set_epoch"):
                loader.dataset.set_epoch(self.epoch)
            batches = rng.undisturbed(partial(self._start, loader, self._sampler))
            while not self.epoch_ends and (until is None or self.step < until):
                yield self._next_window(batches, self._sampler)

    def contents(self) -> Contents:
        """Return what a checkpoint of this moment holds. It draws no random number and changes nothing.

        Raises:
            SaveError: the optimizer has not stepped yet on the batches that were handed out.
        """
        if self._pending_step and "scaler" not in self.stateful:
            raise SaveError(
                f"step {self.step}: the optimizer has not stepped on the batches that were handed out; "
                f"save at the end of the loop's body"
            )
        model, aliases = tensors_of(self.model)
        rank_tensors, rank_state = rng.capture()
        return Contents(
            model=model,
            optim=optimizers.tensors_of(self.optimizer, self._named(model)),
            aliases=aliases,
            state=self._state(model),
            by_name=frozenset({"groups", "values"}),
            rank_tensors=rank_tensors,
            rank_state={"rng": rank_state, "without_state": optimizers.without_state(self.optimizer, self._named(model))},
            model_files=self._model_files,
            buffers=frozenset(name for name, tensor in model.items() if not isinstance(tensor, Parameter)),
            exact_if=self._conditions(model),
        )

    def wanted(self, manifest: Manifest, state: Mapping[str, Any]) -> Contents:
        """Return what to fill from a step, after checking that this run can go on from it. Nothing of the run changes.

        What belongs to one rank is wanted only where the step was saved by as many ranks on the same kind of device.

        Raises:
            ResumeError: the step is of other data, another seed, another global batch or other param groups. Of a step that
                was converted from another system's checkpoint only the param groups are compared.
        """
        _check_state(state, manifest)
        model, aliases = tensors_of(self.model)
        now = self._conditions(model)
        if CONVERTED_FROM in manifest.saved_by:  # another system saved it, which knows neither
            self._check_scheduler_names(state["stateful"])
        else:
            self._check_same_data(state["data"], manifest.exact_if.get("data"), now["data"])
            self._check_same_stateful(state["stateful"])
        optimizers.check_groups(self.optimizer, self._named(model), state["optimizer"], state["groups"])
        return Contents(
            model=model,
            optim=optimizers.tensors_like(
                self.optimizer, self._named(model), manifest.tensors["optim"], state["optimizer"]["groups"]
            ),
            aliases=aliases,
            rank_tensors=rng.capture()[0] if conditions.same_ranks(manifest.exact_if, now) else {},
        )

    def accept(self, loaded: Loaded) -> None:
        """Make what was loaded into `wanted` the state of this run. Every rank calls it.

        Raises `UsageError` when only the model was loaded: the optimizer would lose its state.
        """
        if "optim" not in loaded.missing:
            raise UsageError(f"of step {loaded.manifest.step} the model alone was loaded; a run goes on from all of a step")
        state, contents = loaded.state, loaded.contents
        absent = loaded.rank_state.get("without_state", ())
        named, groups = self._named(contents.model), state["optimizer"]["groups"]
        optimizers.put(self.optimizer, named, contents.optim, groups, state["values"], absent)
        for name in self.stateful.keys() & state["stateful"].keys():
            value = self.stateful[name]
            value.load_state_dict(retyped(state["stateful"][name], value.state_dict()))
        self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
        self._pending_step = False
        if self._sampler is not None:
            self._sampler.epoch, self._sampler.position = self.epoch, self.position
        if contents.rank_tensors:
            rng.restore(contents.rank_tensors, loaded.rank_state["rng"])
        else:
            seed = self._sampler.seed if self._sampler else 0
            rng.reseed(rng.derive_seed("resume", seed, self.step, *rank_and_world_size()))
        self._resumed_rng = rng.capture()

    def promises_lost(self, loaded: Loaded) -> list[str]:
        """Return, in sentences, which promises of exactness do not hold after this resume."""
        manifest = loaded.manifest
        if system := manifest.saved_by.get(CONVERTED_FROM):
            lost = conditions.promises_lost_in_conversion(system, self.stateful.keys(), loaded.state["stateful"].keys())
        else:
            lost = conditions.promises_lost(manifest.exact_if, self._conditions(loaded.contents.model))
        return lost + conditions.values_lost(manifest.inexact)

    def _start(self, loader: DataLoader[Any], sampler: ResumableSampler) -> Iterator[Any]:
        """Start the loader; its workers' generators are new ones for each epoch and each resume, and differ by rank."""
        rank, _ = sampler.data_rank_and_size()
        torch.manual_seed(rng.derive_seed("workers", sampler.seed, self.epoch, self.position, rank))
        return iter(loader)

    def _next_window(self, batches: Iterator[Any], sampler: ResumableSampler) -> list[Any]:
        if self._resumed_rng is not None:
            rng.restore(*self._resumed_rng)
            self._resumed_rng = None
        window = [next(batches) for _ in range(sampler.accumulate)]
        self.step, self.position = self.step + 1, self.position + sampler.global_batch
        self._pending_step = True
        return window

    def _state(self, model: Mapping[str, Tensor]) -> dict[str, Any]:
        return {
            "step": self.step,
            "epoch": self.epoch,
            "position": self.position,
            "data": self._data(),
            "optimizer": optimizers.state_of(self.optimizer),
            "groups": optimizers.groups_of(self.optimizer, self._named(model)),
            "values": optimizers.plain_values_of(self.optimizer, self._named(model)),
            "stateful": {name: value.state_dict() for name, value in self.stateful.items()},
        }

    def _data(self) -> dict[str, int] | None:
        if self._sampler is None:
            return None
        return {name: getattr(self._sampler, name) for name in ("num_samples", "global_batch", "seed")}

    def _conditions(self, model: Mapping[str, Tensor]) -> dict[str, Any]:
        _, world_size = rank_and_world_size()
        device = next((tensor.device for tensor in model.values()), torch.device("cpu"))
        accumulate = None if self._sampler is None else self._sampler.accumulate
        data = getattr(getattr(self.loader, "dataset", None), "fingerprint", None)
        return conditions.present_conditions(
            device=device, world_size=world_size, mesh=mesh_of(model), accumulate=accumulate, data=data
        )

    def _check_same_data(self, saved: object, saved_fingerprint: object, fingerprint: object) -> None:
        if saved != self._data() or saved_fingerprint != fingerprint:
            pair = (
                {"data": one, "fingerprint": print_}
                for one, print_ in ((saved, saved_fingerprint), (self._data(), fingerprint))
            )
            differing = "; ".join(f"{name}: {what}" for name, what in compare_members("", *pair))
            raise ResumeError(
                f"the step and this run are not of the same data: {differing}. Give the same data set, seed and global batch, "
                f"or start a run in another directory"
            )

    def _check_same_stateful(self, saved: Mapping[str, Any]) -> None:
        if differing := sorted(self.stateful.keys() ^ saved.keys()):
            raise ResumeError(
                f"{differing} stand in the step or in TrainState, not in both; resume with what the run was saved with"
            )

    def _check_scheduler_names(self, saved: Mapping[str, Any]) -> None:
        """Refuse a scheduler under another name: left as made it would begin again, and set the learning rate of step 0."""
        given = {name: value.state_dict() for name, value in self.stateful.items()}
        ours, theirs = (
            sorted(name for name in one.keys() - other.keys() if isinstance(one[name], dict) and "last_epoch" in one[name])
            for one, other in ((given, saved), (saved, given))
        )
        if ours and theirs:
            raise ResumeError(
                f"the scheduler {ours[0]!r} of TrainState is not in the step, which has {theirs[0]!r}; if it is the same, "
                f"write TrainState({theirs[0]}=...)"
            )

    def _named(self, model: Mapping[str, Tensor]) -> dict[Tensor, str]:
        return {tensor: name for name, tensor in model.items()}

    def _on_step(self, *_: object) -> None:
        self._pending_step = False


def _check_state(state: Mapping[str, Any], manifest: Manifest) -> None:
    """Refuse a state that no `TrainState` has written, before anything is changed by it."""
    if (system := manifest.saved_by.get(CONVERTED_FROM)) and "optimizer" not in state:
        raise ResumeError(
            f"step {manifest.step} is not a training run's: it holds weights alone, from {system}; take them with load_weights "
            f"into a run in another directory"
        )
    missing = sorted({"step", "epoch", "position", "data", "optimizer", "groups", "values", "stateful"} - state.keys())
    counters = [state.get(name) for name in ("step", "epoch", "position")]
    if missing or state["step"] != manifest.step or not all(type(n) is int and n >= 0 for n in counters):
        raise ResumeError(
            f"the state is not a training run's: it lacks {missing or 'nothing'}, and step, epoch, position are {counters} "
            f"in step {manifest.step}; was it saved by TrainState?"
        )


def retyped(value: Any, like: Any) -> Any:
    """Return `value` with the dict classes and keys that `like` has in its place.

    A file has only dicts, `MultiStepLR` a Counter; and other systems make text of its keys, which are numbers.
    """
    if isinstance(value, dict) and isinstance(like, dict):
        keys = {str(key): key for key in like}
        result = like.copy()
        result.clear()
        result.update({keys.get(key, key): retyped(item, like.get(keys.get(key, key))) for key, item in value.items()})
        return result
    if isinstance(value, list) and isinstance(like, list) and len(value) == len(like):
        return [retyped(item, other) for item, other in zip(value, like, strict=True)]
    return value


def _sampler_of(loader: DataLoader[Any]) -> ResumableSampler:
    sampler = loader.batch_sampler
    if not isinstance(sampler, ResumableSampler):
        raise UsageError(f"the loader's batches come from {type(sampler).__name__}; to go on mid-epoch, write {SAMPLER_LINE}")
    dataset: Any = loader.dataset
    if len(dataset) != sampler.num_samples:
        raise UsageError(f"ResumableSampler({sampler.num_samples}, ...) on a data set of {len(dataset)}; give it len(dataset)")
    if loader.persistent_workers and hasattr(loader.dataset, "set_epoch"):
        raise UsageError(
            "persistent workers keep the first epoch's copy of the data set; use persistent_workers=False with set_epoch"
        )
    return sampler
