"""What a `Checkpointer` is told of a further place for its steps."""

from dataclasses import dataclass, field

from ckptlab.errors import UsageError
from ckptlab.steps.retention import check_rule
from ckptlab.storage import ObjectPath, place


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A run in an object store, into which committed steps are pushed behind the training. No other run has this address.

    Attributes:
        address: like "s3://bucket/runs/mine"; the environment says where that is and who may use it.
        every: only steps that are multiples of it are pushed; None: all.
        keep_last: how many whole steps stay there; None: all.
    """

    address: str | ObjectPath
    every: int | None = None
    keep_last: int | None = None
    run: ObjectPath = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be; nothing is sent yet."""
        check_rule(self.keep_last, None)
        if self.every is not None and self.every < 1:
            raise UsageError(f"every={self.every}: a number of steps, at least 1, or None")
        run = place(self.address)
        if not isinstance(run, ObjectPath):
            raise UsageError(f"ObjectStore({self.address!r}): expected an address like s3://bucket/runs/mine")
        object.__setattr__(self, "run", run)

    def is_due(self, step: int) -> bool:
        """Whether this step is to be pushed."""
        return step % (self.every or 1) == 0
