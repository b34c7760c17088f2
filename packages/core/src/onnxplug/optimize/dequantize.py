"""Constants that are kept quantized although only floats are made of them: they are dequantized once, not in each run.

Providers see QuantizeLinear and DequantizeLinear as the model has them, since they multiply pairs of quantized operands as integers. Some
operators have no such product: a number to pad with, the weights of a transposed convolution, of a normalisation or of a recurrent layer,
what a convolution multiplies with floats or with 16 bits, floats of 8 bits (onnxruntime's QDQ transformers dequantize these in each
run), and what makes a constant of constants, such as the standard deviation of a weight. MatMul and Gemm keep theirs: providers multiply
floats by quantized matrices, of which most of a language model consists.
"""

from __future__ import annotations

from typing import Any

from onnxplug.contract.types import TensorType
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value
from onnxplug.optimize.fold import fold, is_computed

_FLOAT_READERS = frozenset(
    {
        "ConvTranspose",
        "PRelu",
        "LayerNormalization",
        "InstanceNormalization",
        "BatchNormalization",
        "LSTM",
        "GRU",
        "RNN",
    }
)
"""Operators whose operands no form of theirs takes quantized, in ONNX as among onnxruntime's (DynamicQuantizeLSTM rounds its data)."""


_MOVERS = frozenset(
    {
        "Cast",
        "Concat",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Pad",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators that leave the numbers as they are: what reads the result may multiply the bytes."""


def dequantize_constants(graph: Graph, context: Any) -> bool:
    """Replace DequantizeLinear of constants by floats where these are all that is wanted."""
    return fold(graph, context, _is_wanted_as_floats)


def _is_wanted_as_floats(node: Node) -> bool:
    (value,) = node.outputs[:1] or (None,)
    if node.op_type != "DequantizeLinear" or value is None or not isinstance(value.type, TensorType):
        return False
    readers = value.consumers
    if _is_small_float(node.inputs[0]):
        return True
    return value.type.shape == () or (bool(readers) and all(map(_reads_floats, readers)))


def _reads_floats(node: Node) -> bool:
    if node.op_type in _FLOAT_READERS or (node.op_type == "Conv" and not _is_of_bytes(node.inputs[0])):
        return True
    return node.op_type not in _MOVERS and is_computed(node) and all(map(_is_settled, node.inputs))


def _is_settled(value: Value | None) -> bool:
    """Whether a value is a constant, or has been dequantized from constants."""
    maker = None if value is None else value.producer
    if maker is None:
        return value is None or value.is_constant
    return maker.op_type == "DequantizeLinear" and all(v is None or v.is_constant for v in maker.inputs)


def _is_small_float(value: Value | None) -> bool:
    """Whether a value is of a type whose numbers no integer arithmetic multiplies."""
    return value is not None and isinstance(value.type, TensorType) and value.type.dtype.name.startswith("float8")


def _is_of_bytes(value: Value | None) -> bool:
    """Whether a value has been dequantized from at most 8 bits: no device multiplies others as integers."""
    maker = None if value is None else value.producer
    given = None if maker is None or maker.op_type != "DequantizeLinear" else maker.inputs[0]
    return given is not None and (not isinstance(given.type, TensorType) or given.type.dtype.itemsize == 1)
