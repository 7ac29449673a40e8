"""Where bytes go: the only room that opens checkpoint files."""

from ckptlab.storage.object_path import ObjectPath
from ckptlab.storage.run_lock import RunLock
from ckptlab.storage.store import Place, on_disk, place

__all__ = ["ObjectPath", "Place", "RunLock", "on_disk", "place"]
