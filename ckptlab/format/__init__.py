"""What is on disk: pure, without torch, and no file is opened here. README.md is the format in 60 lines."""

from ckptlab.format.boxes import Box, byte_runs
from ckptlab.format.header import parse_header
from ckptlab.format.manifest import Manifest

__all__ = ["Box", "Manifest", "byte_runs", "parse_header"]
