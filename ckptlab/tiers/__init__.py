"""Further places for the steps of a run. `Memory` and `Local`, which need torch, are in `ckptlab.tiers.node`."""

from ckptlab.tiers.object_store import ObjectStore
from ckptlab.tiers.push import Pushed, push

__all__ = ["ObjectStore", "Pushed", "push"]
