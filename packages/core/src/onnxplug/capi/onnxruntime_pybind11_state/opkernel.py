"""The class of what ``get_all_opkernel_def`` lists."""

from onnxplug._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(globals(), {"onnxplug.session.inventory": ("KernelDef",)})
