"""Checkpoints of other systems, in and out."""

from ckptlab.interop.convert import Converted, convert

__all__ = ["Converted", "convert"]
