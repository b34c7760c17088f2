"""Softmax and LogSoftmax."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.rows import Operand
from onnxplug_ep_cpu.codegen.kernels.softmax import Softmax
from onnxplug_ep_cpu.codegen.lower.context import Lowering, lowering
from onnxplug_ep_cpu.codegen.lower.lines import Lines, Work, source
from onnxplug_ep_cpu.codegen.lower.support import floats


@lowering("Softmax", "LogSoftmax", supports=floats)
def softmax(b: Lowering, node: NodeView) -> None:
    """Over one axis; before version 13 over all dimensions from it on."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    shape, log = b.shape(y), node.op_type == "LogSoftmax"
    recent = node.since_version >= 13
    axis = node.attributes.get("axis", -1 if recent else 1)
    axis += len(shape) if axis < 0 else 0
    axes = range(axis, axis + 1 if recent else len(shape))
    expr, leaves, order = source(b, x)

    def make(
        lines: Lines, expr: ex.Expr, post: ex.Expr, operands: tuple[Operand, ...], further: tuple[Operand, ...]
    ) -> Softmax:
        return Softmax(lines.along, len(lines.outer), operands, further, expr, post, log)

    small = tuple(1 if d in axes else n for d, n in enumerate(shape))
    held = [b.scratch(small, order) for _ in range(2)]
    b.pend(y, Work(b, axes, expr, leaves, make, 20.0, held).pending(shape, order))
