"""Where kernels of Triton run."""

from ops.triton.interpreter import triton_device

__all__ = ["triton_device"]
