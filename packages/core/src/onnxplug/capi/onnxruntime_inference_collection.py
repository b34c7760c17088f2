"""Names of onnxruntime's Python layer: sessions, values, bindings and the check of provider arguments."""

from onnxplug._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    globals(),
    {
        "onnxplug.capi": ("_pybind_state as C",),
        "onnxplug.session.adapters": ("AdapterFormat",),
        "onnxplug.session.compiler": ("ModelCompiler",),
        "onnxplug.session.device": ("OrtDevice", "get_ort_device_type", "get_vendor_id_for_device_type"),
        "onnxplug.session.device_enums": ("OrtDeviceVendorId",),
        "onnxplug.session.environment": ("copy_tensors",),
        "onnxplug.session.iobinding": ("IOBinding",),
        "onnxplug.session.ortvalue": ("OrtValue",),
        "onnxplug.session.provider_args": ("check_and_normalize_provider_args",),
        "onnxplug.session.session": ("InferenceSession", "Session"),
        "onnxplug.session.sparse": ("SparseTensor",),
    },
)
