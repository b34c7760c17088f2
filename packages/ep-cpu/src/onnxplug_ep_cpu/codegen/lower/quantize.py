"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.fuse import ELEMENTWISE
from onnxplug_ep_cpu.codegen.kernels.quantize import Extremes, Range
from onnxplug_ep_cpu.codegen.lower import qparts
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.elementwise import merged
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.qbinary import recombined
from onnxplug_ep_cpu.codegen.lower.qgemm import EIGHT_BITS, SIXTEEN_BITS, IntegerAnchor, saturated
from onnxplug_ep_cpu.codegen.lower.quantized import MS, constant_numbers, divided, parameters, wants_wide, zero_of
from onnxplug_ep_cpu.codegen.lower.requantize import rescaled
from onnxplug_ep_cpu.codegen.lower.support import FLOAT32, axis_of, number, typed
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor
from onnxplug_kernels.ops.quantize import dequantize_linear

EXTREMES_BLOCK = 16384
LEAST_STEP, MOST_STEP = 2.0**-126, 2.0**111
"""Scales by which no number of 16 bits is out of float32's normal range."""


def _quantize_supports(node: NodeView) -> str | None:
    made = typed(node.outputs[0], EIGHT_BITS | SIXTEEN_BITS)
    reason = typed(node.inputs[0]) or made or typed(node.inputs[1])
    if reason or node.attributes.get("precision", 0) not in (0, 1):
        return reason or "quantization in another precision is not generated"
    told = node.domain == "" and node.since_version >= 23 and not node.attributes.get("precision", 0)
    if told and typed(node.inputs[1], FLOAT32):
        return "quotients rounded to half precision, the type of the scale, are not generated"
    return _parameters_support(node)


def _parameters_support(node: NodeView) -> str | None:
    return qparts.unfit(node) if node.attributes.get("block_size", 0) else parameters(node, 1, 2, arrays=(1, 2))


@lowering("QuantizeLinear", supports=_quantize_supports)
@lowering("QuantizeLinear", domain=MS, supports=_quantize_supports)
def quantize(b: Lowering, node: NodeView) -> None:
    """round(x / scale) + zero point, saturated; part of the loop or integer product that makes x, unless by several scales."""
    if node.attributes.get("block_size", 0):
        qparts.quantize_blocks(b, node)
        return
    if qparts.by_axis(node):
        qparts.quantize_axis(b, node)
        return
    (x, *_), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    zero = zero_of([*node.inputs, None][2])
    assert zero is not None
    made = quantized(b, node, x, b.shape(y), wants_wide(b, y, zero))
    if isinstance(made, Pending):
        b.pend(y, made)
    else:
        b.define(y, made)


def quantized(b: Lowering, node: NodeView, x: ValueView, shape: Ints, wide: bool) -> Tensor | Pending:
    """A value as a QuantizeLinear would have it: pending, or the tensor that it was dequantized from."""
    (y,), zero, step = node.outputs, zero_of([*node.inputs, None][2]), number(node.inputs[1])
    assert y is not None and zero is not None and step is not None
    held = b.pending(x)
    same = None if wide else _undone(held, zero, step, b.element(y))
    if same is not None:
        return same
    folded = recombined(held, step, zero, b.element(y), wide)
    if folded is not None and isinstance(held, Pending):
        return replace(held, shape=shape, expr=folded, element="int16" if wide else b.element(y))
    if isinstance(held, Pending) and held.anchor is not None and not isinstance(held.anchor, IntegerAnchor):
        b.read(x)
    build = ex.Build()
    if isinstance(held, Pending) and isinstance(held.anchor, IntegerAnchor):
        once = rescaled(b, held, step)
        if once is not None:
            value = build.include(once.expr, [build("leaf", i) for i in range(len(once.leaves))])
            expr = build.finish(saturated(build, value, zero, b.element(y), wide))
            return replace(once, shape=shape, expr=expr, element="int16" if wide else b.element(y))
    # An integer product's scale is rounded anyway; multiplying by a reciprocal costs it half a unit in the last place more. What is
    # computed of numbers that were quantized before may lie halfway between two others, which only a division leaves there.
    if isinstance(held, Pending) and isinstance(held.anchor, IntegerAnchor) and not _rounds(held.expr):
        value = build("mul", build("leaf", 0), build("const", float(np.float32(1) / np.float32(step))))
    elif isinstance(held, Pending) and held.anchor is not None:
        value = build("div", build("leaf", 0), build("const", step))
    else:
        value = divided(b, build, build("leaf", 0), step)
    pending = merged(b, shape, build.finish(saturated(build, value, zero, b.element(y), wide)), [x])
    pending.element = "int16" if wide else b.element(y)
    return pending


def _done_once(node: NodeView) -> bool:
    """Whether floats are made of it when it is prepared."""
    x = node.inputs[0]
    few = x is not None and x.dtype is not None and x.dtype.name in ("int4", "uint4", "int2", "uint2")
    known = all(v is None or v.constant is not None for v in node.inputs)
    return known and (few or bool(node.attributes.get("block_size", 0)))


def _dequantize_supports(node: NodeView) -> str | None:
    reason = typed(node.inputs[1]) or typed(node.outputs[0])
    if reason or _done_once(node):
        return reason
    return typed(node.inputs[0], (*EIGHT_BITS, *SIXTEEN_BITS, "int32")) or _parameters_support(node)


@lowering("DequantizeLinear", supports=_dequantize_supports)
@lowering("DequantizeLinear", domain=MS, supports=_dequantize_supports)
def dequantize(b: Lowering, node: NodeView) -> None:
    """(x - zero point) * scale, in whatever reads it; by tensor or by axis. In blocks at once, of constants once."""
    (x, scale, *rest), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None and scale is not None
    if _done_once(node):
        given = {name: value for name, value in node.attributes.items() if name in ("axis", "block_size")}
        others = [None if v is None else v.constant for v in (scale, *rest)]
        form = ("floats of blocks", *(None if v is None else v.name for v in (scale, *rest)), *sorted(given.items()))
        made = b.prepared.packed(
            x, form, lambda array: dequantize_linear(np, array, *others, **given).astype(np.float32, copy=False)
        )
        b.define(y, b.tensor_of(made))
        return
    if node.attributes.get("block_size", 0):
        qparts.dequantize_blocks(b, node)
        return
    zeros, scales = b.constant(rest[0]) if rest and rest[0] is not None else None, b.constant(scale)
    assert scales is not None
    fused = _within(b, x, y, zeros, scales)
    if fused is not None:
        b.pend(y, fused)
    else:
        b.values[y.name] = _dequantized(b, x, zeros, scales, node)


def _undone(held: Tensor | Pending, zero: int, step: float, element: str) -> Tensor | None:
    """The tensor that has been dequantized by the same numbers: a product and a quotient are less than half a unit off."""
    if not isinstance(held, Pending) or held.anchor is not None or not LEAST_STEP <= step <= MOST_STEP:
        return None
    build = ex.Build()
    leaf = build("leaf", 0)
    leaf = build("sub", leaf, build("const", float(zero))) if zero else leaf
    if held.expr != build.finish(build("mul", leaf, build("const", float(np.float32(step))))):
        return None
    (tensor,) = held.leaves
    return tensor if tensor is not None and tensor.element == element else None


def _rounds(expr: ex.Expr) -> bool:
    return any(instruction[0] in ("quantize", "round") for instruction in expr)


def _within(b: Lowering, x: ValueView, y: ValueView, zeros: np.ndarray | None, scales: np.ndarray) -> Pending | None:
    """What an integer product was quantized to, dequantized in its end: where one element-wise node, as of a residual, reads
    it there. None where something else does."""
    held = b.pending(x)
    if not isinstance(held, Pending) or not isinstance(held.anchor, IntegerAnchor) or not _rounds(held.expr):
        return None
    reader = b.prepared.reader.get(y.name)
    if b.uses(y) != 1 or reader is None or reader.op_type not in ELEMENTWISE or reader.domain != "":
        return None
    if scales.size != 1 or (zeros is not None and zeros.size != 1):
        return None
    if any(v.name not in b.values and v.name != y.name and _of_product(v) for v in reader.inputs if v is not None):
        return None  # the other product's end will read this one, in a quarter of the memory
    build = ex.Build()
    zero = 0 if zeros is None or held.element != b.element(x) else int(zeros.reshape(-1)[0])
    value = _less_zero(build, held.expr, zero, [build("leaf", i) for i in range(len(held.leaves))])
    value = build("mul", value, build("const", float(np.float32(scales.reshape(-1)[0]))))
    return replace(held, expr=build.finish(value), element="float32")


def _of_product(value: ValueView) -> bool:
    """Whether a value is dequantized from what a product was quantized to."""
    for op_type in ("DequantizeLinear", "QuantizeLinear"):
        maker = value.producer
        if maker is None or maker.op_type != op_type or maker.inputs[0] is None:
            return False
        value = maker.inputs[0]
    return value.producer is not None and value.producer.op_type in ("Conv", "Gemm", "MatMul")


def _less_zero(build: ex.Build, expr: ex.Expr, zero: int, leaves: list[int]) -> int:
    """What an expression quantizes to, less a zero point: the rounded number itself where that is the one it has added."""
    op, *operands = expr[-1]
    if op == "quantize" and expr[operands[3]] == ("int32", zero):
        value, low, high, _ = operands
        at = len(expr) - 1
        return build.include((*expr[:-1], ("max", value, low), ("min", at, high), ("round", at + 1)), leaves)
    number = build("to_float32", build.include(expr, leaves))
    return build("sub", number, build("const", float(zero))) if zero else number


def _dequantized(b: Lowering, x: ValueView, zeros: np.ndarray | None, scales: np.ndarray, node: NodeView) -> Pending:
    tensor = b.read(x)
    build = ex.Build()
    leaf = build("leaf", 0)
    leaves: list[Tensor | None] = [tensor]
    if tensor.element == "int32":
        leaf = build("to_float32", leaf)
    rank = len(tensor.shape)
    axis = axis_of(node.attributes.get("axis", 1), rank) if rank > 1 else 0

    def along(array: np.ndarray) -> int:
        """The position of a parameter: a constant, or a leaf along the axis."""
        if array.size == 1:
            return build("const", float(np.float32(array.reshape(-1)[0])))
        leaves.append(qparts.along(constant_numbers(b, array), axis, rank))
        return build("leaf", len(leaves) - 1)

    if zeros is not None and np.any(zeros) and tensor.element == b.element(x):  # int16 of bytes is less it already
        leaf = build("sub", leaf, along(zeros.astype(np.float32)))
    result = build("mul", leaf, along(scales))
    return Pending(tensor.shape, build.finish(result), leaves, cheap=True)


def _dynamic_supports(node: NodeView) -> str | None:
    return typed(node.inputs[0], FLOAT32)


@lowering("DynamicQuantizeLinear", supports=_dynamic_supports)
def dynamic_quantize(b: Lowering, node: NodeView) -> None:
    """x as uint8 with the scale and zero point that make its range fill [0, 255]."""
    (x,), (y, scale, zero) = node.inputs, [*node.outputs, None, None][:3]
    assert x is not None and y is not None
    tensor = b.read(x)
    if 0 in tensor.strides or not _gapless(tensor):
        tensor = b.dense(x)
    scale_at, zero_at, zero_float = dynamic_range(b, tensor)
    if scale is not None:
        b.define(scale, scale_at)
    if zero is not None:
        b.define(zero, zero_at)
    wide = zero is not None and wants_wide(b, y, zero)
    pending = quantized_by(tensor, scale_at, zero_float, wide)
    b.values[y.name] = pending
    b.read(y)


def dynamic_range(b: Lowering, tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scale, zero point and zero point as float32 of a tensor without gaps."""
    items = -(-tensor.size // EXTREMES_BLOCK)
    pairs = b.scratch((max(1, items), 2))
    args: list[int | Ref] = [pairs.ref, tensor.ref, tensor.size, EXTREMES_BLOCK]
    b.program.call(Extremes(), args, items, tensor.size / (2 * b.target.lanes))
    scale, zero, zero_float = b.scratch(()), b.scratch((), element="uint8"), b.scratch(())
    b.program.call(Range(), [scale.ref, zero.ref, zero_float.ref, pairs.ref, items], 1, 20.0 + items)
    return scale, zero, zero_float


def quantized_by(tensor: Tensor, scale: Tensor, zero: Tensor, wide: bool) -> Pending:
    """A tensor as uint8, or int16 less the zero point, by a scale and zero point (float32) computed before."""
    build = ex.Build()
    leaf, point = build("leaf", 0), build("leaf", 2)
    value = build("add", build("round", build("div", leaf, build("leaf", 1))), point)
    value = build("min", build("max", value, build("const", 0.0)), build("const", 255.0))
    value = build("sub", value, point) if wide else value
    expr = build.finish(build("nearest_int32", value))
    return Pending(tensor.shape, expr, [tensor, scale, zero], element="int16" if wide else "uint8")


def _gapless(tensor: Tensor) -> bool:
    """Every element between the first and the last belongs to the tensor."""
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)) == tensor.size
