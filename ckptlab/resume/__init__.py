"""A training run that can stop anywhere and go on exactly: what it is made of, when it is saved, how it resumes."""

from ckptlab.resume.checkpointer import Checkpointer
from ckptlab.resume.gate import finite
from ckptlab.resume.sampler import ResumableSampler, sample_generator
from ckptlab.resume.train_state import TrainState
from ckptlab.resume.weights import load_weights

__all__ = ["Checkpointer", "ResumableSampler", "TrainState", "finite", "load_weights", "sample_generator"]
