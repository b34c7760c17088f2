"""What onnxruntime's CPU provider computes otherwise than ONNX's specification says, or does not compute though it has a kernel: such nodes
are left to others. Found by the conformance kit with onnxruntime 1.31.

Two kinds: what is wrong, or fails, is never taken; what is only less exact than the kit asks for, or differs for NaN, zeros with a sign and
numbers that overflow, is taken unless option ``exact`` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onnxplug.contract import NodeView, TensorType
from onnxplug.contract.types import ELEMENT_NAMES

Operator = tuple[str, str]
Kinds = tuple[str | None, frozenset[str], str]
"""A type constraint, the types of it that are not taken, and the reason. No constraint: the operator as a whole."""
_MS = "com.microsoft"


def _tensors(*elements: str) -> frozenset[str]:
    return frozenset(f"tensor({element})" for element in elements)


_FLOATS = _tensors("float", "double", "float16", "bfloat16")
_NOT_IN_FLOAT = frozenset({"double", "int32", "int64", "uint32", "uint64"})
_BELOW_FLOAT = frozenset(
    {"float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"}
)
"""Elements that hold less than float32, and those that it does not hold."""
_FLOAT8 = _tensors("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0")
_IN_FLOAT = "double is computed in float32"
_NO_DOUBLE = "its kernel of double raises that it is not supported yet"

_WRONG: Mapping[Operator, Kinds] = {
    ("", "BlackmanWindow"): ("T2", _tensors("double"), _IN_FLOAT),
    ("", "ConstantOfShape"): ("T2", _FLOAT8, "its kernel refuses values of float8"),
    ("", "GRU"): ("T", _tensors("double"), _NO_DOUBLE),
    ("", "Gather"): ("T", _tensors("string"), "it gives empty strings"),
    ("", "HammingWindow"): ("T2", _tensors("double"), _IN_FLOAT),
    ("", "HannWindow"): ("T2", _tensors("double"), _IN_FLOAT),
    ("", "LSTM"): ("T", _tensors("double"), _NO_DOUBLE),
    ("", "Mod"): ("T", _tensors("uint64"), "it computes uint64 as a number with sign"),
    (_MS, "AttnLSTM"): ("T", _tensors("double"), _NO_DOUBLE),
    (_MS, "LinearAttention"): ("S", _tensors("bfloat16"), "its kernel takes a state of bfloat16 for float32"),
    (_MS, "MoE"): ("T", _tensors("float16"), "its results in float16 are wrong"),
    (_MS, "SparseAttention"): (None, frozenset(), "it wants the present keys and values in the memory of the past ones"),
    (_MS, "UnfoldTensor"): (
        "T", _tensors("bfloat16", "bool", "float16", "int16", "int8", "string", "uint16", "uint32", "uint64", "uint8"),
        "its kernel is for float, double, int32 and int64 only",
    ),
}  # fmt: skip

_ROUGH = "it is less exact than onnxplug asks for"
_NAN = "NaN among the elements may not be the result, and over no elements of bool there is none"
_INEXACT: Mapping[Operator, Kinds] = {
    ("", "Celu"): ("T", _FLOATS, _ROUGH),
    ("", "Cos"): ("T", _tensors("double"), _ROUGH),
    ("", "DFT"): (None, frozenset(), _ROUGH),
    ("", "Elu"): ("T", _FLOATS, _ROUGH),
    ("", "ReduceL1"): ("T", _tensors("float", "float16", "int64"), "sums are rough, those of int64 beyond 2**53 inexact"),
    ("", "ReduceMax"): ("T", _FLOATS | _tensors("bool"), _NAN),
    ("", "ReduceMin"): ("T", _FLOATS | _tensors("bool"), _NAN),
    ("", "Range"): ("T", _tensors("float", "int64"), "its steps are added up, and counted in double"),
    ("", "ReduceLogSumExp"): ("T", _tensors("float16"), "results that float16 holds overflow"),
    ("", "ReduceProd"): ("T", _tensors("int32", "int64"), "it multiplies integers as floats, so that products that overflow are clipped"),
    ("", "ReduceSum"): ("T", _tensors("int64"), "sums beyond 2**53 are inexact"),
    ("", "ReduceSumSquare"): ("T", _tensors("int64"), "sums beyond 2**53 are inexact"),
    ("", "STFT"): (None, frozenset(), _ROUGH),
    ("", "Selu"): ("T", _FLOATS, _ROUGH),
    ("", "Shrink"): ("T", _tensors("double"), _IN_FLOAT),
    ("", "Sigmoid"): ("T", _FLOATS, _ROUGH),
    ("", "Sign"): ("T", _FLOATS, "NaN becomes zero"),
    ("", "Where"): ("T", _FLOATS, "-0.0 becomes 0.0"),
    ("ai.onnx.ml", "TreeEnsembleClassifier"): (
        None, frozenset(), "classes are chosen otherwise where two have votes, and where one has none",
    ),
    (_MS, "DynamicQuantizeLSTM"): (None, frozenset(), "its results change with the number of threads"),
    (_MS, "QLinearSoftmax"): (None, frozenset(), "results are a step off where one is no multiple of their scale"),
}  # fmt: skip


def not_taken(operator: Operator, exact: bool) -> list[Kinds]:
    """The types of an operator that are not taken."""
    tables = (_WRONG, _INEXACT) if exact else (_WRONG,)
    return [table[operator] for table in tables if operator in table]


def deviation(node: NodeView, exact: bool) -> str | None:
    """What onnxruntime makes of a node that ONNX does not, None where they agree."""
    for constraint, kinds, reason in not_taken((node.domain, node.op_type), exact):
        if constraint is None or node.constraint_types.get(constraint) in kinds:
            return reason
    rules = (_RULES, _EXACT_RULES) if exact else (_RULES,)
    for table in rules:
        rule = table.get((node.domain, node.op_type))
        if rule is not None and (said := rule(node)) is not None:
            return said
    return None


def _given(node: NodeView, index: int) -> bool:
    return index < len(node.inputs) and node.inputs[index] is not None


def _element(node: NodeView, index: int) -> str:
    value = node.inputs[index] if _given(node, index) else None
    return value.type.element if value is not None and isinstance(value.type, TensorType) else ""


def _unless(legal: Callable[[NodeView], bool], reason: str) -> Callable[[NodeView], str | None]:
    return lambda node: None if legal(node) else reason


def _if_given(index: int, reason: str) -> Callable[[NodeView], str | None]:
    return lambda node: reason if _given(node, index) else None


def _attribute(node: NodeView, name: str, default: Any) -> Any:
    return node.attributes.get(name, default)


def _cast(node: NodeView) -> str | None:
    to = _attribute(node, "to", 1)
    if to in (21, 22, 25, 26) and f"tensor({_element(node, 0)})" in _FLOATS | _FLOAT8:
        return "fractions are rounded, not cut off, and what is out of range wraps"
    return None if _attribute(node, "saturate", 1) else "saturate is taken for 1 in part of the elements"


def _exact_cast(node: NodeView) -> str | None:
    """What float32 does not hold is rounded to it first; float8 is compared and copied by its bits."""
    source, to = _element(node, 0), ELEMENT_NAMES.get(_attribute(node, "to", 1), "")
    if source in _NOT_IN_FLOAT and to in _BELOW_FLOAT:
        return f"{source} becomes {to} by way of float32, so that it is rounded twice"
    by_bits = source.startswith("float8") and (to == "bool" or to == source)
    return f"{source} becomes {to} by its bits: -0.0 is true, and infinities stay" if by_bits else None


def _quantize(node: NodeView) -> str | None:
    if not _attribute(node, "saturate", 1):
        return "saturate is taken for 1"
    return (
        None if _element(node, 0) == _element(node, 1) else "its kernel takes the scale for a value of the input's type"
    )


def _mod(node: NodeView) -> str | None:
    is_float, fmod = node.constraint_types.get("T") in _FLOATS, _attribute(node, "fmod", 0)
    if is_float and not fmod:
        return "fmod is taken for 1"
    return "fmod is computed in double" if fmod and _element(node, 0) == "int64" else None


def _gemm(node: NodeView) -> str | None:
    """A depth that is given by a weight is known, and not 0."""
    shape = (node.inputs[0] and node.inputs[0].shape) or ()
    depth = shape[0 if _attribute(node, "transA", 0) else 1] if len(shape) == 2 else None
    scaled = _given(node, 2) and _attribute(node, "beta", 1.0) != 1.0
    return (
        "beta is taken for 1 where there is nothing to multiply"
        if scaled and not (isinstance(depth, int) and depth)
        else None
    )


def _matmul(node: NodeView) -> str | None:
    left, right = (tuple((v and v.shape) or ()) for v in node.inputs[:2])
    rows = left[-2] if len(left) > 1 and len(right) == 1 else 1
    return None if isinstance(rows, int) and rows else "matrices without rows, times a vector, are refused"


def _scanned(node: NodeView) -> str | None:
    """Along which axis a Scan goes is told of its last inputs; version 8 has the lengths first and a batch before each axis."""
    count = _attribute(node, "num_scan_inputs", 1)
    axes = _attribute(node, "scan_input_axes", None) or [int(node.since_version == 8)] * count
    for value, axis in zip(node.inputs[-count:], axes, strict=False):
        length = () if value is None or value.shape is None else value.shape[axis:][:1]
        if not (length and isinstance(length[0], int) and length[0]):
            return "a scan over nothing is refused, and this one may be"
    return None


def _one_zero_point(node: NodeView) -> bool:
    value = node.inputs[3] if _given(node, 3) else None
    return value is None or value.shape in ((), (1,))


def _trained(node: NodeView) -> str | None:
    mode = node.inputs[2] if _given(node, 2) else None
    fixed = mode is None or (mode.constant is not None and not mode.constant.any())
    return None if fixed else "it draws other random numbers"


def _grouped(node: NodeView) -> str | None:
    if any(_given(node, index) for index in range(14, len(node.inputs))):
        return "weights of norms are refused"
    halves = node.constraint_types.get("T") == "tensor(float16)"
    few_bits = node.constraint_types.get("T_CACHE") == "tensor(uint8)"
    return "a cache of uint8 beside float16 is refused" if halves and few_bits else None


def _resize(node: NodeView) -> str | None:
    mode = _attribute(node, "coordinate_transformation_mode", "half_pixel")
    if mode == "tf_crop_and_resize" and _given(node, 1) and _element(node, 1) != "float":
        return "a region in another type than float32 is refused"
    by_scales = mode == "align_corners" and not _given(node, 3) and node.since_version >= 11
    return "align_corners goes by the size of the result, not by its scale" if by_scales else None


def _experts(node: NodeView) -> str | None:
    if _given(node, 6) or _attribute(node, "use_sparse_mixer", 0):
        return "a third layer is refused, and use_sparse_mixer ignored"
    shared = any(v is not None and v.is_constant and len(v.consumers) > 1 for v in node.inputs)
    return "its results are wrong where other nodes read its constants too" if shared else None


_NO_ZERO_POINT = _unless(
    lambda node: len(node.inputs) > 4 and all(v is not None for v in node.inputs),
    "onnxruntime ends the process where a zero point is left out",
)
_RULES: Mapping[Operator, Callable[[NodeView], str | None]] = {
    ("", "Attention"): _unless(
        lambda node: not (_given(node, 3) and _given(node, 6)),
        "a mask beside lengths of the keys is refused if it is shorter",
    ),
    ("", "BatchNormalization"): _unless(
        lambda node: not _attribute(node, "training_mode", 0),
        "in training it writes the means and variances that it makes over those that it is given",
    ),
    ("", "Cast"): _cast,
    ("", "ConvInteger"): _unless(_one_zero_point, "zero points of channels are refused"),
    ("", "Gemm"): _gemm,
    ("", "LRN"): _unless(
        lambda node: len((node.inputs[0] and node.inputs[0].shape) or ()) == 4,
        "inputs of other than 4 dimensions are refused",
    ),
    ("", "MatMul"): _matmul,
    ("", "MaxUnpool"): _if_given(2, "elements go elsewhere where the output's shape is given"),
    ("", "Mod"): _mod,
    ("", "QuantizeLinear"): _quantize,
    ("", "Resize"): _resize,
    ("", "Scan"): _scanned,
    (_MS, "ConvTransposeWithDynamicPads"): _unless(
        lambda node: _given(node, 2), "pads are wanted, though they are optional"
    ),
    (_MS, "GroupQueryAttention"): _grouped,
    (_MS, "LinearAttention"): _unless(
        lambda node: node.constraint_types.get("S") == node.constraint_types.get("T"),
        "a state of another type than the rest is refused",
    ),
    (_MS, "MoE"): _experts,
    (_MS, "MultiHeadAttention"): _unless(
        lambda node: _given(node, 1) and _given(node, 2), "keys or values packed with others are refused"
    ),
    (_MS, "QLinearLeakyRelu"): _NO_ZERO_POINT,
    (_MS, "QLinearSigmoid"): _NO_ZERO_POINT,
}
_EXACT_RULES: Mapping[Operator, Callable[[NodeView], str | None]] = {
    ("", "Attention"): _unless(
        lambda node: not (len(node.outputs) > 3 and node.outputs[3] is not None),
        "scores that are left out are the lowest number, not minus infinity",
    ),
    ("", "Cast"): _exact_cast,
    ("", "Dropout"): _trained,
}
