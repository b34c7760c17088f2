"""Path or bytes to ``Model``."""

from onnxplug.load.model import Model, load_model

__all__ = ["Model", "load_model"]
