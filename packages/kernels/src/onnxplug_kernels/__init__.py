"""ONNX operators written once over an array namespace ``xp`` (NumPy's idiom): no registration with a runtime, no device code."""

from onnxplug_kernels.catalogue import OpKernel, catalogue, find

__all__ = ["OpKernel", "catalogue", "find"]
