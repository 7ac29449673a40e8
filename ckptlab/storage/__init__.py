"""Where bytes go: the only room that opens checkpoint files."""

from ckptlab.storage.run_lock import RunLock

__all__ = ["RunLock"]
