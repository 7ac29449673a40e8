"""What a notebook understands beside Python: `%%ranks`, `%%exercise`, completion from a rank, errors in words; and `language`.

A kernel's settings name this package, notebooks name `ckptlab.course`: at a name that is loaded already IPython prints that.
"""

from typing import TYPE_CHECKING

from ckptlab.course.choice import take_choice
from ckptlab.course.magics.choosing import language

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["language", "load_ipython_extension"]


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Give a notebook the course's magics; IPython calls it. Loading twice does no harm."""
    from ckptlab.course.magics.shell import install  # IPython is loaded only where a notebook is

    install(shell)
    take_choice()
