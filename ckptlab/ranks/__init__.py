"""Real processes for notebooks, tests and jobs; knows nothing of checkpoints."""

from ckptlab.ranks.elastic import Failure, run_job
from ckptlab.ranks.join import init_from_environment
from ckptlab.ranks.world import World

__all__ = ["Failure", "World", "init_from_environment", "run_job"]
