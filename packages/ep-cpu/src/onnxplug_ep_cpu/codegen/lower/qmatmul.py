"""Matrix products of quantized tensors with constant weights; those of two computed ones are left to floats."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.bytedots import quad_form
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.products import Matrix
from onnxplug_ep_cpu.codegen.lower.qdot import quad_product, readable
from onnxplug_ep_cpu.codegen.lower.qfloats import product_of_integers, product_of_quantized
from onnxplug_ep_cpu.codegen.lower.qgemm import (
    EIGHT_BITS,
    integer_product,
    pack,
    pending_integer,
    scalar,
    tile_rows,
    widened,
)
from onnxplug_ep_cpu.codegen.lower.quads import quad_weights
from onnxplug_ep_cpu.codegen.lower.quantize import dynamic_range, quantized_by
from onnxplug_ep_cpu.codegen.lower.quantized import MS, constant_numbers, parameters, quantized_types, single
from onnxplug_ep_cpu.codegen.lower.requantize import scaled
from onnxplug_ep_cpu.codegen.lower.support import FLOAT32, attributes, number, rank, typed
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor


def products_of(
    b: Lowering,
    shape: Ints,
    x: Tensor,
    x_zero: Tensor,
    w: ValueView,
    w_zero: np.ndarray | None,
    transposed: bool = False,
    bias: np.ndarray | None = None,
) -> Pending:
    """(x - zero point) (w - zero points) + bias in int32, of ``shape``, pending; x may be int16 and without its zero point already."""
    k, n = b.shape(w)[::-1] if transposed else b.shape(w)
    m = math.prod(shape[:-1])
    left = x if x.is_dense else b.copied(x, range(len(x.shape)))
    if bias is None:
        bias = np.zeros(n, np.int32)
    held = b.tensor_of(np.ascontiguousarray(bias, np.int32).reshape(-1))

    def lies(array: Tensor) -> tuple[int, ...]:
        along, across = array.strides[::-1] if transposed else array.strides
        return k, 0, along, across

    def even(tensor: Tensor) -> bool:
        return tensor.reshaped((m, n)) is not None

    quads = quad_weights(b, w, transposed, (k, n), lies, w_zero) if m else None
    if quads is not None:
        left = readable(b, left, k)

        def emit_quads(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
            found = [(kind, leaf, _matrix(leaf, shape, m, n, kind)) for kind, leaf in operands]
            c = _matrix(target, shape, m, n, "full")
            quad_product(b, m, 1, (left, k, 0), x_zero, quads, c, target.element, expr, found, held, b.prepared.varies)

        return pending_integer(b, shape, len(shape) - 1, tuple(range(len(shape))), emit_quads, even)
    left = widened(b, left, x_zero)
    weights = pack(b, w, transposed, lambda a: (a.T if transposed else a)[None, None], w_zero, n)
    rows = tile_rows(b.target, m, weights.vectors, b.prepared.varies) if m else 1

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        if m == 0 or n == 0:
            return
        found = [(kind, leaf, _matrix(leaf, shape, m, n, kind)) for kind, leaf in operands]
        integer_product(
            b, (m, n), (1, 1), Matrix(left.ref, k), weights, _matrix(target, shape, m, n, "full"), target.element, expr, found,
            held, rows,
        )  # fmt: skip

    return pending_integer(b, shape, len(shape) - 1, tuple(range(len(shape))), emit, even)


def _matrix(leaf: Tensor, shape: tuple[int, ...], m: int, n: int, kind: str) -> Matrix:
    if kind != "full":
        return Matrix(leaf.ref, 0)
    view = leaf.broadcast(shape).reshaped((m, n))
    assert view is not None, "rows of a result are evenly spaced"
    return Matrix(view.ref, view.strides[0])


def weights_support(node: NodeView, position: int, zero: int) -> str | None:
    w = node.inputs[position]
    if w is None or w.constant is None or w.constant.ndim != 2:
        return "only constant matrices are generated on the right"
    if rank(node.inputs[0]) < 2:
        return "vectors are not generated"
    columns = node.inputs[zero] if zero < len(node.inputs) else None
    if columns is not None and columns.constant is None:
        return f"'{columns.name}', a zero point, is computed"
    return None


def array_at(b: Lowering, node: NodeView, position: int) -> np.ndarray | None:
    value = node.inputs[position] if position < len(node.inputs) else None
    return None if value is None else b.constant(value)


def operands_support(node: NodeView, zero: int) -> str | None:
    """Why no integer product of the first two inputs is generated, whose zero points are at ``zero`` and behind it; or None."""
    reason = quantized_types(node, 0) or single(node.inputs[zero] if zero < len(node.inputs) else None)
    return reason or right_support(node, zero + 1)


def right_support(node: NodeView, zero: int) -> str | None:
    """Why no integer product with the second input is generated, whose zero points are at ``zero``; or None."""
    reason, w = quantized_types(node, 1), node.inputs[1]
    if reason or w is None or w.constant is not None:
        return reason or weights_support(node, 1, zero)
    reason = single(node.inputs[zero] if zero < len(node.inputs) else None)
    return reason or ("vectors are not generated" if min(map(rank, node.inputs[:2])) < 2 else None)


def integers_of(b: Lowering, node: NodeView, zero: int) -> Pending:
    """The product of the first two inputs less their zero points, pending in int32."""
    x, x_zero = node.inputs[0], node.inputs[zero] if zero < len(node.inputs) else None
    assert x is not None
    return product_with(b, node, (b.read(x), scalar(b, x_zero, b.element(x))), zero + 1)


def product_with(b: Lowering, node: NodeView, left: tuple[Tensor, Tensor], zero: int) -> Pending:
    """The product of a tensor less its zero point and the second input less its own, which are at ``zero``, pending in int32."""
    w, w_zero, (y,) = node.inputs[1], node.inputs[zero] if zero < len(node.inputs) else None, node.outputs
    assert w is not None and y is not None
    if b.constant(w) is None:
        return product_of_integers(b, b.shape(y), left, (b.read(w), scalar(b, w_zero, b.element(w))))
    return products_of(b, b.shape(y), *left, w, array_at(b, node, zero))


def _integer_supports(node: NodeView) -> str | None:
    return operands_support(node, 2)


@lowering("MatMulInteger", supports=_integer_supports)
def matmul_integer(b: Lowering, node: NodeView) -> None:
    """The int32 product; what follows it is computed while it is in registers."""
    (y,) = node.outputs
    assert y is not None
    b.pend(y, integers_of(b, node, 2))


def _to_float_supports(node: NodeView) -> str | None:
    (_, _, a_scale, w_scale, *_) = node.inputs
    reason = typed(a_scale, FLOAT32) or typed(w_scale, FLOAT32) or typed(node.outputs[0], FLOAT32)
    return reason or single(a_scale) or operands_support(node, 4)


@lowering("MatMulIntegerToFloat", domain=MS, supports=_to_float_supports)
def matmul_integer_to_float(b: Lowering, node: NodeView) -> None:
    """MatMulInteger scaled back to floats, plus bias."""
    (_, _, x_scale, w_scale, _, _, bias), (y,) = [*node.inputs, None, None, None][:7], node.outputs
    assert y is not None and x_scale is not None and w_scale is not None
    b.pend(y, in_floats(b, integers_of(b, node, 4), b.read(x_scale), w_scale, bias))


def in_floats(b: Lowering, pending: Pending, x_scale: Tensor, w_scale: ValueView, bias: ValueView | None) -> Pending:
    """The integers times both scales, plus bias."""
    build = ex.Build()
    pending.leaves += [_flat(x_scale), _flat(b.read(w_scale))]
    total = build("to_float32", build("leaf", 0))
    total = build("mul", total, build("mul", build("leaf", 1), build("leaf", 2)))
    if bias is not None:
        pending.leaves.append(b.read(bias))
        total = build("add", total, build("leaf", 3))
    pending.expr, pending.element = build.finish(total), "float32"
    return pending


def _flat(tensor: Tensor) -> Tensor:
    """A scale of one element, or of one for each column, without other dimensions."""
    view = tensor.reshaped((tensor.size,) if tensor.size != 1 else ())
    assert view is not None
    return view


def _dynamic_supports(node: NodeView) -> str | None:
    return typed(node.inputs[0], FLOAT32) or typed(node.inputs[2], FLOAT32) or right_support(node, 3)


@lowering("DynamicQuantizeMatMul", domain=MS, supports=_dynamic_supports)
def dynamic_quantize_matmul(b: Lowering, node: NodeView) -> None:
    """MatMulIntegerToFloat of a float operand quantized by its own range."""
    (x, _, w_scale, _, bias), (y,) = [*node.inputs, None, None][:5], node.outputs
    assert x is not None and y is not None and w_scale is not None
    source = b.dense(x)
    scale, zero, zero_float = dynamic_range(b, source)
    left = b.write(quantized_by(source, scale, zero_float, wide=quad_form(b.target) is None))
    b.pend(y, in_floats(b, product_with(b, node, (left, zero), 3), scale, w_scale, bias))


def _qlinear_supports(node: NodeView) -> str | None:
    reason = quantized_types(node, 0, 3) or typed(node.outputs[0], EIGHT_BITS) or parameters(node, 1, 2, 6, 7)
    if node.inputs[3] is not None and node.inputs[3].constant is None:
        vectors = min(rank(node.inputs[0]), rank(node.inputs[3])) < 2
        reason = reason or parameters(node, 4, 5) or ("vectors are not generated" if vectors else None)
    else:
        reason = reason or parameters(node, 4, 5, arrays=(4, 5)) or weights_support(node, 3, 5)
    return reason or next((r for p in (1, 4, 6) if (r := typed(node.inputs[p], FLOAT32))), None)


@lowering("QLinearMatMul", supports=_qlinear_supports)
def qlinear_matmul(b: Lowering, node: NodeView) -> None:
    """The product, quantized again."""
    if node.inputs[3] is not None and node.inputs[3].name not in b.prepared.constant:
        product_of_quantized(b, node)
        return
    x, x_scale, x_zero, w, w_scale, _, y_scale, y_zero = node.inputs
    (y,) = node.outputs
    assert x is not None and w is not None and y is not None and w_scale is not None and w_scale.constant is not None
    pending = products_of(b, b.shape(y), b.read(x), scalar(b, x_zero, b.element(x)), w, array_at(b, node, 5))
    scale = np.float32(number(x_scale) or 0) * w_scale.constant.astype(np.float32) / np.float32(number(y_scale) or 0)
    b.pend(y, scaled(b, y, pending, scale, y_zero))


def _qgemm_supports(node: NodeView) -> str | None:
    reason = quantized_types(node, 0, 3) or parameters(node, 1, 2, 7, 8) or parameters(node, 4, 5, arrays=(4, 5))
    if reason or node.attributes.get("transA", 0):
        return reason or "A transposed is not generated"
    bias = node.inputs[6] if len(node.inputs) > 6 else None
    if bias is not None and (bias.constant is None or bias.constant.ndim > 1):
        return "only constant vectors are generated as C"
    return weights_support(node, 3, 5)


@lowering("QGemm", domain=MS, supports=_qgemm_supports)
def qgemm(b: Lowering, node: NodeView) -> None:
    """alpha A B + C, quantized again or as floats."""
    x, x_scale, x_zero, w, w_scale, _, bias, y_scale, y_zero = [*node.inputs, None, None, None][:9]
    (y,) = node.outputs
    assert x is not None and w is not None and y is not None and w_scale is not None and w_scale.constant is not None
    given = attributes(node, alpha=1.0, transB=0)
    array = None
    if bias is not None and bias.constant is not None:
        array = np.broadcast_to(bias.constant, (b.shape(y)[1],))
    pending = products_of(
        b,
        b.shape(y),
        b.read(x),
        scalar(b, x_zero, b.element(x)),
        w,
        array_at(b, node, 5),
        bool(given["transB"]),
        array,
    )
    scale = np.float32(given["alpha"]) * np.float32(number(x_scale) or 0) * w_scale.constant.astype(np.float32)
    if y_scale is not None and y_zero is not None:
        b.pend(y, scaled(b, y, pending, scale / np.float32(number(y_scale) or 0), y_zero))
        return
    build = ex.Build()
    factor = build("const", float(scale.reshape(-1)[0]))
    if scale.size != 1:
        pending.leaves.append(constant_numbers(b, scale.reshape(-1)))
        factor = build("leaf", 1)
    pending.expr = build.finish(build("mul", build("to_float32", build("leaf", 0)), factor))
    pending.element = "float32"
    b.pend(y, pending)
