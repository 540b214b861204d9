"""Lossless all-reduce of sparse gradients for PyTorch.

    model.register_comm_hook(peelreduce.DDPState(), peelreduce.allreduce_hook)
"""

import peelreduce_backend

from . import ops
from ._core import version
from ._switch import Switch
from ._workers import empty_cache, reset
from .ddp import DDPState, allreduce_hook
from .errors import Disagreement, Error, Misuse, NotFinite, TimedOut, TransportFailed
from .fsdp import apply_fsdp
from .functional import State, Work, all_reduce
from .logger import StepLogger
from .profiling import Profile, profile
from .sparsifiers import Threshold, TopK

__version__ = version()
peelreduce_backend.register()  # torch does so by itself where packages are installed by pip

__all__ = [
    "DDPState",
    "Disagreement",
    "Error",
    "Misuse",
    "NotFinite",
    "Profile",
    "State",
    "StepLogger",
    "Switch",
    "Threshold",
    "TimedOut",
    "TopK",
    "TransportFailed",
    "Work",
    "__version__",
    "all_reduce",
    "allreduce_hook",
    "apply_fsdp",
    "empty_cache",
    "ops",
    "profile",
    "reset",
]
