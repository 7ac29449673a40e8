"""ckptlab measured against its peers and against what the machine allows."""

from ckptlab.bench.run import Settings, bench

__all__ = ["Settings", "bench"]
