"""What a notebook understands beside Python: `%%ranks`, `%%exercise`, completion from a rank, errors in words."""

from ckptlab.course.magics.shell import install
from ckptlab.course.magics.shell import install as load_ipython_extension  # a kernel's settings name this package

__all__ = ["install", "load_ipython_extension"]
