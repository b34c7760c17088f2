"""Provider-neutral passes, applied before placement (and to what function inlining brings to light)."""

from onnxplug.optimize.passes import Optimizer

__all__ = ["Optimizer"]
