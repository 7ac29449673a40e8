"""A small, real sharded checkpointer for torch.distributed, and a course on how it works."""

__version__ = "0.1.0"
