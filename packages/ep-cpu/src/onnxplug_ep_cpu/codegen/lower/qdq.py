"""Float products between DequantizeLinear nodes, as products of the integers behind them.

The patterns take the dequantization of constant weights and biases with the product; the one of the data stays with whatever
else reads it. Sums are exact, so results differ from those of dequantized floats by rounding only.
"""

from __future__ import annotations

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.fuse import Group, Nodes, pattern, readers_of
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import accept
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.qconv import along_channels, convolution
from onnxplug_ep_cpu.codegen.lower.qgemm import EIGHT_BITS, scalar
from onnxplug_ep_cpu.codegen.lower.qmatmul import products_of
from onnxplug_ep_cpu.codegen.lower.quantized import FLOAT_PRODUCTS, constant_numbers, zero_of
from onnxplug_ep_cpu.codegen.lower.support import number, rank, typed

BIAS_LIMIT = 2.0**30
"""Half of what int32 holds: the products of thirty thousand bytes have the rest."""


@record(frozen=True, slots=True)
class _Found:
    """The dequantizations before a product; the one of a bias may be missing, or the bias a constant of floats."""

    node: NodeView
    data: NodeView
    weights: NodeView
    bias: NodeView | None

    @property
    def constants(self) -> tuple[NodeView, ...]:
        return tuple(n for n in (self.weights, self.bias) if n is not None)


def _dequantizes(value: ValueView | None, elements: frozenset[str] = EIGHT_BITS) -> NodeView | None:
    """The DequantizeLinear that makes the value, by tensor or by axis with constant parameters."""
    node = None if value is None else value.producer
    if node is None or node.op_type != "DequantizeLinear" or node.attributes.get("block_size", 0):
        return None
    if typed(node.inputs[0], elements) or typed(node.inputs[1]) or typed(node.outputs[0]):
        return None
    return node if all(v is None or v.constant is not None for v in node.inputs[1:]) else None


def _constant(value: ValueView | None, axes: tuple[int, ...], elements: frozenset[str] = EIGHT_BITS) -> NodeView | None:
    """As ``_dequantizes``, of a constant, with one parameter or one for each entry of an axis."""
    node = _dequantizes(value, elements)
    if node is None or value is None or node.inputs[0] is None:
        return None
    array = node.inputs[0].constant
    by_axis = any(v is not None and v.constant is not None and v.constant.size != 1 for v in node.inputs[1:])
    if array is None or (by_axis and array.ndim > 1 and node.attributes.get("axis", 1) % array.ndim not in axes):
        return None
    return node


def _find(node: NodeView) -> _Found | None:
    """The parts of a product that is one of integers, from what does not depend on shapes. Others that read its dequantized
    constants (the head of a detector on several levels) have to be such products too."""
    found = _parts(node)
    if found is None:
        return None
    for constant in found.constants:
        (value,) = constant.outputs
        assert value is not None
        for reader in value.consumers:
            other = found if reader is node else _parts(reader) if reader.op_type in FLOAT_PRODUCTS else None
            if other is None or other.data is constant or constant not in other.constants:
                return None
    return found


def _parts(node: NodeView) -> _Found | None:
    transposed = node.attributes.get("transB", 0)
    axis = 0 if node.op_type == "Conv" or transposed else 1
    data, weights = _dequantizes(node.inputs[0]), _constant(node.inputs[1], (axis,))
    if data is None or weights is None or number(data.inputs[1]) is None or zero_of([*data.inputs, None][2]) is None:
        return None
    kernel = weights.inputs[0]
    assert kernel is not None and kernel.constant is not None
    if node.op_type == "Conv":
        if rank(node.inputs[0]) not in (3, 4, 5):
            return None
    elif kernel.constant.ndim != 2 or rank(node.inputs[0]) < 2:
        return None
    if node.op_type == "Gemm" and (
        node.attributes.get("transA", 0)
        or node.attributes.get("alpha", 1.0) != 1
        or node.attributes.get("beta", 1.0) != 1
    ):
        return None
    given = node.inputs[2] if len(node.inputs) > 2 else None
    if given is None:
        return _Found(node, data, weights, None)
    columns = kernel.constant.shape[axis]
    if given.constant is not None:
        return _Found(node, data, weights, None) if given.constant.shape == (columns,) else None
    bias = _constant(given, (0,), frozenset({"int32", *EIGHT_BITS}))
    if bias is None or bias.inputs[0] is None or bias.inputs[0].constant is None:
        return None
    return _Found(node, data, weights, bias) if bias.inputs[0].constant.shape == (columns,) else None


@accept("Conv", "MatMul", "Gemm")
def _accepts(node: NodeView) -> bool:
    return _find(node) is not None


@pattern("Conv")
@pattern("MatMul")
@pattern("Gemm")
def integer_product(node: NodeView, nodes: Nodes) -> Group | None:
    """A convolution or matrix product of dequantized data and dequantized constant weights."""
    found = _find(node)
    if found is None:
        return None
    taken = []
    for constant in found.constants:
        (value,) = constant.outputs
        assert value is not None
        readers = readers_of(value)
        if nodes.maker(value, "DequantizeLinear", readers=len(readers)) is not constant:
            return None
        if min(readers, key=nodes.position) is node:  # nobody reads its floats; it is in one of the groups
            taken.append(constant)
    return Group((*taken, node), lambda b: _lower(b, found))


def _lower(b: Lowering, found: _Found) -> bool:
    node, (x, x_scale, *x_rest) = found.node, found.data.inputs
    (w, w_scale, *w_rest), (y,) = found.weights.inputs, node.outputs
    assert x is not None and w is not None and y is not None and w_scale is not None and w_scale.constant is not None
    if x.name not in b.values and b.constant(x) is None:
        return False
    shape, step = b.shape(y), number(x_scale)
    assert step is not None
    zero = scalar(b, x_rest[0] if x_rest else None, b.element(x))
    w_zero = b.constant(w_rest[0] if w_rest else None)
    scale = np.float32(step) * w_scale.constant.astype(np.float32).reshape(-1)
    counts = _counts(found, scale)
    if node.op_type == "Conv":
        pending = convolution(b, node, shape, x, zero, w, w_zero, counts)
    else:
        transposed = bool(node.attributes.get("transB", 0))
        pending = products_of(b, b.shape(y), b.read(x), zero, w, w_zero, transposed, counts)
    _scale(b, pending, scale, _bias(found) if counts is None else None, node.op_type == "Conv")
    b.pend(y, pending)
    return True


def _counts(found: _Found, scale: np.ndarray) -> np.ndarray | None:
    """A bias in units of the products, which the sums take as it is; None where it has other units or leaves no room for them."""
    if found.bias is None:
        return None
    values, step, *rest = (None if v is None else v.constant for v in found.bias.inputs)
    assert values is not None and step is not None
    if values.dtype != np.int32 or any(points is not None and np.any(points) for points in rest):
        return None
    same = step.astype(np.float32).reshape(-1)
    if same.size not in (1, scale.size) or not np.array_equal(np.broadcast_to(same, scale.shape), scale):
        return None
    return values if np.abs(values, dtype=np.float64).max(initial=0) < BIAS_LIMIT else None


def _bias(found: _Found) -> np.ndarray | None:
    given = found.node.inputs[2] if len(found.node.inputs) > 2 else None
    if found.bias is None:
        return None if given is None else given.constant
    (values, scale, *rest) = found.bias.inputs
    assert values is not None and values.constant is not None and scale is not None and scale.constant is not None
    points = rest[0].constant if rest and rest[0] is not None else None
    shifted = values.constant.astype(np.float32) - (0 if points is None else points.astype(np.float32))
    return np.asarray(shifted * scale.constant.astype(np.float32), np.float32)


def _scale(b: Lowering, pending: Pending, scale: np.ndarray, bias: np.ndarray | None, image: bool) -> None:
    """The sums as floats: times their scale, plus the bias."""
    build = ex.Build()

    def column(array: np.ndarray) -> int:
        if array.size == 1:
            return build("const", float(array.reshape(-1)[0]))
        vector = constant_numbers(b, array.reshape(-1))
        pending.leaves.append(along_channels(vector, len(pending.shape)) if image else vector)
        return build("leaf", len(pending.leaves) - 1)

    total = build("to_float32", build("leaf", 0))
    factor = column(scale)
    value = build("mul", total, factor) if bias is None else build("fma", total, factor, column(bias))
    pending.expr, pending.element = build.finish(value), "float32"
