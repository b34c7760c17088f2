"""The class of what ``get_all_operator_schema`` lists."""

from onnxplug._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(globals(), {"onnxplug.session.schemadef": ("OpSchema",)})
