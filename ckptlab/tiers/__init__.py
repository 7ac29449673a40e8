"""Further places for the steps of a run."""

from ckptlab.tiers.node import Local, Memory, NodeTier
from ckptlab.tiers.object_store import ObjectStore
from ckptlab.tiers.push import Pushed, push

__all__ = ["Local", "Memory", "NodeTier", "ObjectStore", "Pushed", "push"]
