"""What the forkserver loads once, so that a rank starts in milliseconds and shares the memory.

Only the forkserver imports this module, and importing it is all it does: `fork` copies what is loaded here. Without dynamo and
the profiler every rank would load them in its first FSDP2 step (7.5 s and 705 MB for 4 ranks, instead of 0.7 s and 370 MB).
"""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # the other check starts CUDA, and CUDA does not survive a fork

import torch._dynamo
import torch.distributed.fsdp
import torch.optim
import torch.profiler  # noqa: F401

import ckptlab.ranks.rank  # noqa: F401

gc.collect()
gc.freeze()  # a collection in a rank would write to every page that the ranks share
