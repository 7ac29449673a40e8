"""Which steps exist, are they whole, are they as written, do they differ, may they go; no torch."""

from ckptlab.steps.compare import compare
from ckptlab.steps.rollback import rollback
from ckptlab.steps.steps import list_steps, newest_step
from ckptlab.steps.verify import verify

__all__ = ["compare", "list_steps", "newest_step", "rollback", "verify"]
