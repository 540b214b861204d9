"""The part of the library that works on GPUs, where there is one.

It was built if nvcc was found, and loads if torch has loaded the CUDA runtime that it was built with: its libcudart is
torch's, since a second one would not know torch's streams.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import torch

from . import _core


def _load() -> tuple[ModuleType | None, str]:
    """The module, or why there is none."""
    try:
        cuda = import_module("._cuda", __package__)
    except ModuleNotFoundError:
        return None, "peelreduce was built without CUDA; install it where nvcc is found"
    except ImportError as error:
        return None, f"the CUDA runtime that peelreduce was built with is not torch's ({error}); build it with torch's"
    built, has = cuda.CUDART_VERSION // 1000, torch.version.cuda
    if has is None or int(has.split(".")[0]) != built:
        return None, f"peelreduce was built with CUDA {built}, and torch with {has or 'none'}; build it with torch's"
    return cuda, ""


_module, missing = _load()  # `missing` is empty if there is a module


def module() -> ModuleType:
    """The extension module _cuda."""
    if _module is None:
        raise _core.Error(f"Tensors of GPUs cannot be coded where they are: {missing}.")
    return _module


def about() -> str:
    """What there is, in a few words."""
    if _module is None:
        return f"no: {missing}"
    built = f"built with CUDA {_module.CUDART_VERSION // 1000}.{_module.CUDART_VERSION % 1000 // 10}"
    if not torch.cuda.is_available():
        return f"{built}; there is no GPU"
    return f"{built}; {torch.cuda.get_device_name()}"
