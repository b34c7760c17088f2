"""Path or bytes to ``Model``."""

from typing import TYPE_CHECKING

from onnxplug._lazy import lazy_names

if TYPE_CHECKING:
    from onnxplug.load.model import Model as Model
    from onnxplug.load.model import load_model as load_model

__getattr__, __dir__, __all__ = lazy_names(globals(), {"onnxplug.load.model": ("Model", "load_model")})
