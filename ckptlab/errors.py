"""Every exception that a caller of ckptlab meets, one tree.

CkptlabError
├── FormatError        bytes that are not a valid header, manifest or state file of format 1
├── StepError          a run directory or step that is not there, not whole, in the way or in use
├── StoreError         an object store that does not answer, refuses, or loses what it took
├── UsageError         arguments that do not fit together; also a ValueError
├── SaveError          a save that did not commit on any rank, or of which this rank cannot know
│   └── ReplicaMismatch    replicas of one tensor that differ
├── LoadError          a load that was refused or broke off
│   ├── CorruptError       a committed step whose bytes are not the bytes that were written
│   └── ResumeError        a run that cannot go on as it was: other data, other seed, other optimizer
└── WorldError         ranks that could not be started or do not answer
    ├── RankRaised         a rank's code raised
    └── RankLost           a rank died or hangs

Beside it stands `Preempted`, which is no error: it ends the process when a signal has stopped the run.

A message says what failed, where (rank, name, step, path), what was expected and found, and what to do.
"""

from typing import ClassVar


class CkptlabError(Exception):
    """Base of every error that ckptlab raises on purpose."""


class FormatError(CkptlabError):
    """The bytes are not valid format 1."""


class StepError(CkptlabError):
    """A run directory or a step is not there, not whole, in the way or in use."""


class StoreError(CkptlabError):
    """An object store does not answer, refuses, or does not have what it took. Of the step it says nothing."""


class UsageError(CkptlabError, ValueError):
    """The arguments do not fit together."""


class SaveError(CkptlabError):
    """The step was not committed, or this rank cannot know whether it was.

    Attributes:
        committed: `False`, or `None` when it is not known (the coordinator was lost at the end).
        lost: the ranks that did not answer.
    """

    def __init__(self, message: str, *, committed: bool | None = False, lost: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.committed = committed
        self.lost = lost


class ReplicaMismatch(SaveError):
    """Ranks that should hold equal copies of a tensor do not."""


class LoadError(CkptlabError):
    """The step was not loaded.

    Attributes:
        state_changed: whether the model and optimizer may hold a mixture by now; if not, they are as before.
    """

    def __init__(self, message: str, *, state_changed: bool = False) -> None:
        super().__init__(message)
        self.state_changed = state_changed


class CorruptError(LoadError):
    """A block of a committed step is not as it was written."""


class ResumeError(LoadError):
    """The run cannot go on as it was."""


class WorldError(CkptlabError):
    """The ranks of a world could not be started or do not answer."""


class RankRaised(WorldError):
    """The code that ran on a rank raised."""


class RankLost(WorldError):
    """A rank died or hangs.

    Attributes:
        ranks: the ranks that are lost.
    """

    def __init__(self, message: str, *, ranks: tuple[int, ...]) -> None:
        super().__init__(message)
        self.ranks = ranks


class Preempted(SystemExit):
    """A signal has stopped the run on all ranks; to be started again it needs nothing but the same command.

    A `SystemExit`, so that a loop's `except Exception` lets it pass and the process ends with `code`.

    Attributes:
        step: the last step that was trained.
    """

    CODE: ClassVar = 75  # EX_TEMPFAIL of sysexits.h: try again

    def __init__(self, step: int, code: int = CODE) -> None:
        super().__init__(code)
        self.step = step
