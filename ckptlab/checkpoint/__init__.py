"""One step of a run: save it from all ranks, load it into any number of ranks."""

from ckptlab.checkpoint.contents import Contents
from ckptlab.checkpoint.load import load
from ckptlab.checkpoint.save import save

__all__ = ["Contents", "load", "save"]
