"""Further places for a committed step of a run on disk."""

from ckptlab.tiers.object_store import ObjectStore
from ckptlab.tiers.push import Pushed, push

__all__ = ["ObjectStore", "Pushed", "push"]
