"""Further places for a committed step of a run on disk."""

from ckptlab.tiers.push import Pushed, push

__all__ = ["Pushed", "push"]
