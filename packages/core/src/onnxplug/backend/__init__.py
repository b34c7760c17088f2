"""ONNX's backend interface (``onnx.backend.base``): ``prepare``, ``run``, ``is_compatible``, ``supports_device``."""

from onnxplug.backend.backend import is_compatible, prepare, run, supports_device

__all__ = ["is_compatible", "prepare", "run", "supports_device"]
