"""Element types as torch and as the library name them."""

import torch

TYPES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
}
DTYPES = {name: dtype for dtype, name in TYPES.items()}
