"""What the provider leaves to others although ``onnxplug_kernels`` has it, and why."""

from __future__ import annotations

from onnxplug.contract import NodeView, TensorType, type_strings
from onnxplug_ep_cuda.codegen.table import ALONE
from onnxplug_kernel_text.types import OF_ELEMENT

ELEMENTS = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float", "double", "complex64", "complex128",
)  # fmt: skip
"""Element types that CuPy computes with."""

DEVICE_TYPES = type_strings(ELEMENTS)
WRITTEN_TYPES = type_strings(OF_ELEMENT)
"""Those of generated kernels."""

UNFIT: dict[tuple[str, str], str] = {
    ("", "MelWeightMatrix"): "a table made of five numbers, which are on the host",
    ("com.microsoft", "MurmurHash3"): "works on strings, and on bits of numbers",
    ("com.microsoft", "Tokenizer"): "works on strings",
}
"""Operators whose work is the host's."""


def refusal(node: NodeView) -> str | None:
    """Why a node that has a kernel is left all the same, or None."""
    for value in (*node.inputs, *node.outputs):
        if value is None or value.type is None:
            continue
        if not isinstance(value.type, TensorType):
            return f"{value.name} is no dense tensor: {value.type}"
        if value.type.element not in ELEMENTS:
            return f"{value.name} is of {value.type}, which CuPy does not hold"
    *_, unwritten = ALONE.get((node.domain, node.op_type), (None,))
    return None if unwritten is None else unwritten(node)
