"""onnxruntime's module paths, for programs that import from them."""

from onnxplug._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    globals(),
    {},
    submodules=(
        "_pybind_state", "build_and_package_info", "onnxruntime_collect_build_info", "onnxruntime_inference_collection",
        "onnxruntime_pybind11_state", "onnxruntime_validation",
    ),
)  # fmt: skip
