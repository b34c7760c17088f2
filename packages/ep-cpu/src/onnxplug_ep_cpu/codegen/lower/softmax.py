"""Softmax, LogSoftmax and Hardmax."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.rows import Operand
from onnxplug_ep_cpu.codegen.kernels.softmax import Softmax
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.counting import counted
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.extremes import places
from onnxplug_ep_cpu.codegen.lower.lines import Lines, Work, source
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import REALS, attributes, axis_of, floats, of, since
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor


@lowering("Softmax", "LogSoftmax", supports=of(REALS))
def softmax(b: Lowering, node: NodeView) -> None:
    """Over one axis; before version 13 over all dimensions from it on."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    recent = node.since_version >= 13
    axes = axes_of(len(b.shape(y)), node.attributes.get("axis", -1 if recent else 1), recent)
    b.pend(y, softmaxed(b, b.shape(y), axes, source(b, x), node.op_type == "LogSoftmax", b.element(y)))


@lowering("Hardmax", supports=since(13, floats))
def hardmax(b: Lowering, node: NodeView) -> None:
    """1 at the first largest element along the axis, 0 elsewhere."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    tensor = b.read(x)
    axis = axis_of(attributes(node, axis=-1)["axis"], len(tensor.shape))
    behind = len(tensor.shape) - 1 - axis
    here = counted(b, tensor.shape[axis]).viewed((tensor.shape[axis], *[1] * behind), (1, *[0] * behind))
    build = ex.Build()
    there = build("equal", build("to_int32", build("leaf", 0)), build("leaf", 1))
    result = build.finish(build("to_float32", there))
    b.pend(y, Pending(tensor.shape, result, [places(b, tensor, axis), here]))


def axes_of(rank: int, axis: int, recent: bool) -> range:
    """The dimensions whose exponentials are summed."""
    axis = axis_of(axis, rank)
    return range(axis, axis + 1 if recent else rank)


def softmaxed(
    b: Lowering,
    shape: Ints,
    axes: range,
    given: tuple[ex.Expr, list[Tensor], Ints],
    log: bool = False,
    element: str = "float32",
) -> Pending:
    """The softmax of an expression over leaves that lies in an order, pending."""
    expr, leaves, order = given

    def make(
        lines: Lines, expr: ex.Expr, post: ex.Expr, operands: tuple[Operand, ...], further: tuple[Operand, ...]
    ) -> Softmax:
        return Softmax(lines.along, len(lines.outer), operands, further, expr, post, log, element)

    small = tuple(1 if d in axes else n for d, n in enumerate(shape))
    held = [b.scratch(small, order, element) for _ in range(2)]
    return Work(b, axes, expr, leaves, make, 20.0, held, element).pending(shape, order)
