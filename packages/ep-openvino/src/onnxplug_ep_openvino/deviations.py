"""What OpenVINO computes otherwise than ONNX says, of operators that it has: such nodes are left to others, with the reason.

Found by the conformance kit with OpenVINO 2026.4 on a processor. Two kinds: what is wrong is never taken; what is only less exact than
the kit asks for, or differs for NaN, is taken unless option ``exact`` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onnxplug.contract import NodeView, TensorType

_NAN = "it takes NaN for a number"
_ROUGH = "it is less exact near zero than onnxplug asks for"
INEXACT: Mapping[str, str] = {
    **dict.fromkeys(("Clip", "Exp", "Greater", "GreaterOrEqual", "Max", "Min", "ReduceMax", "ReduceMin", "Relu"), _NAN),
    **dict.fromkeys(("Elu", "Erf", "Selu", "Softplus"), _ROUGH),
}
"""By operator why it is not taken where results are to be exact."""


def deviation(node: NodeView, exact: bool) -> str | None:
    """What OpenVINO makes of a node that ONNX does not, None where they agree."""
    if exact and node.op_type in INEXACT:
        return INEXACT[node.op_type]
    rule = _RULES.get(node.op_type)
    return rule(node) if rule is not None else None


def _unless(legal: Callable[[NodeView], Any], reason: str) -> Callable[[NodeView], str | None]:
    return lambda node: None if legal(node) else reason


def _given(node: NodeView, index: int) -> bool:
    return index < len(node.inputs) and node.inputs[index] is not None


def _in_bounds(node: NodeView) -> bool:
    """Whether all indices are constants within the data's axis; of an axis of open length those that any has."""
    data, indices = node.inputs[:2]
    if data is None or indices is None or indices.constant is None or not data.shape:
        return False
    dim = data.shape[node.attributes.get("axis", 0)]
    length = dim if isinstance(dim, int) else 1
    return indices.constant.size > 0 and bool(-length <= indices.constant.min() and indices.constant.max() < length)


def _constant_from(first: int) -> Callable[[NodeView], bool]:
    return lambda node: all(v is None or v.is_constant for v in node.inputs[first:])


def _ends_within(node: NodeView) -> bool:
    """Whether no window of a pooling that rounds up begins behind the input, where ONNX has none. Of a length that is not known none does
    where windows have no gaps between them and nothing is padded behind."""
    of = node.attributes
    if not of.get("ceil_mode", 0):
        return True
    x, kernel = node.inputs[0], of["kernel_shape"]
    count = len(kernel)
    steps, wide, pads = (
        of.get("strides", [1] * count),
        of.get("dilations", [1] * count),
        of.get("pads", [0] * 2 * count),
    )
    lengths = [] if x is None or x.shape is None else x.shape[2:]
    if of.get("auto_pad", "NOTSET") != "NOTSET" or len(lengths) != count:
        return False
    for length, width, step, apart, before, behind in zip(
        lengths, kernel, steps, wide, pads[:count], pads[count:], strict=True
    ):
        reach = (width - 1) * apart + 1
        if not isinstance(length, int):
            within = step <= reach and not behind
        else:
            last = -(-(length + before + behind - reach) // step) * step
            within = last < length + before
        if not within:
            return False
    return True


def _short_bounds(node: NodeView) -> bool:
    """Whether the bounds of a Slice are constants, or of 32 bits."""
    return all(
        v is None or v.is_constant or (isinstance(v.type, TensorType) and v.type.element == "int32")
        for v in node.inputs[1:3]
    )


_AXES = _unless(_constant_from(1), "its axes are to be constants")
_ONE = _unless(lambda node: len(node.inputs) > 1, "with one input its result is left unwritten")
_RULES: Mapping[str, Callable[[NodeView], str | None]] = {
    "Attention": _unless(
        lambda node: not (node.attributes.get("is_causal", 0) and _given(node, 4)),
        "a causal mask does not begin behind the keys of the past",
    ),
    "AveragePool": _unless(
        lambda node: not (node.attributes.get("ceil_mode", 0) and node.attributes.get("count_include_pad", 0)),
        "windows that are rounded up count what is beyond the padding",
    ),
    "Gather": _unless(_in_bounds, "indices out of bounds give zeros without an error, and these may be"),
    "Gemm": _unless(
        lambda node: node.attributes.get("beta", 1.0) != 0 or not _given(node, 2),
        "infinities and NaN among what is multiplied by a beta of 0 count",
    ),
    "MatMul": _unless(
        lambda node: all(v is not None and v.shape is not None and len(v.shape) > 1 for v in node.inputs),
        "a product with a vector is fused to one that does not go together",
    ),
    "Max": _ONE,
    "MaxPool": lambda node: (
        "storage_order is taken for 0"
        if node.attributes.get("storage_order", 0)
        else None
        if _ends_within(node)
        else "a window may begin behind the input, which makes a result of its own"
    ),
    "Mean": _ONE,
    "Min": _ONE,
    "Slice": _unless(_short_bounds, "bounds that a run brings are held in 32 bits"),
    "Squeeze": _AXES,
    "Sum": _ONE,
    "Unsqueeze": _AXES,
    **dict.fromkeys(
        ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"), _AXES
    ),
}
