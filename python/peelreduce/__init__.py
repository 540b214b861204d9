"""Lossless all-reduce of sparse gradients for PyTorch.

    model.register_comm_hook(peelreduce.DDPState(), peelreduce.allreduce_hook)
"""

import peelreduce_backend
import torch  # noqa: F401: it loads the libraries that the extension module shares with it

try:
    from ._core import version
except ImportError as error:
    if "libgomp" in str(error):
        raise ImportError(
            f"{error}; torch brings none here, so install the system's (libgomp1 on Debian, libgomp on Fedora)"
        ) from error
    raise
from . import ops
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
