"""Running sums and products along an axis."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.kernels.running import Running, together
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.lines import split
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.support import NUMBERS, attributes, axis_of, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported


def _supports(node: NodeView) -> str | None:
    if node.inputs[1] is None or node.inputs[1].constant is None:
        return "an axis that is computed is not generated"
    known = typed(node.inputs[0], NUMBERS) or typed(node.outputs[0], NUMBERS)
    return known or ("its operand is a scalar" if rank(node.inputs[0]) < 1 else None)


@lowering("CumSum", "CumProd", supports=_supports)
def running(b: Lowering, node: NodeView) -> None:
    """The sum or product of the elements up to each one, or from each one on."""
    (x, place), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None and place is not None
    numbers = b.numbers(place)
    assert numbers is not None
    source = b.read(x)
    dims = range(len(source.shape))
    axis = axis_of(numbers[0], len(dims))
    if 0 in source.strides:
        source = b.copied(source, dims)
    result = b.output(y, sorted(dims, key=lambda d: (-source.strides[d], d)), source.element)
    if result.size == 0:
        return
    made = result
    lines = split((made, source), [axis])
    if lines is None:
        order = [*(d for d in dims if d != axis), axis]
        made, source = b.scratch(source.shape, order, source.element), b.copied(source, order)
        lines = split((made, source), [axis])
    if lines is None:
        raise Unsupported("a line of the operand has gaps")
    given = attributes(node, exclusive=0, reverse=0)
    kind = "add" if node.op_type == "CumSum" else "mul"
    flags = bool(given["exclusive"]), bool(given["reverse"])
    kernel = Running(lines.along, len(lines.outer), kind, source.element, *flags)
    lines.call(b, kernel, 8.0, together=together(b.target, source.element))
    if made is not result:
        copy(b.program, b.target, made, result)
