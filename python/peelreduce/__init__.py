"""Lossless all-reduce of sparse gradients for PyTorch.

    model.register_comm_hook(peelreduce.DDPState(), peelreduce.allreduce_hook)
"""

from . import ops
from ._core import Error, version
from ._switch import Switch
from .ddp import DDPState, allreduce_hook
from .fsdp import apply_fsdp
from .functional import State, Work, all_reduce
from .logger import StepLogger
from .profiling import Profile, profile
from .sparsifiers import Threshold, TopK

__version__ = version()

__all__ = [
    "DDPState",
    "Error",
    "Profile",
    "State",
    "StepLogger",
    "Switch",
    "Threshold",
    "TopK",
    "Work",
    "__version__",
    "all_reduce",
    "allreduce_hook",
    "apply_fsdp",
    "ops",
    "profile",
]
