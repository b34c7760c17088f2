"""Loops over bags of embeddings (torch.nn.EmbeddingBag, which its exporter writes as a Loop): one pass over the rows wanted.

A trip takes a bag's start and end, the indices between them, the table's rows of these, perhaps times weights, and reduces them
to one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.kernels.bags import Bags
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.support import typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref

REDUCTIONS = {"ReduceSum": "add", "ReduceMean": "mean", "ReduceMax": "max"}
BLOCK = 4096
"""Elements read for one item, about."""


@record(frozen=True, slots=True)
class Bag:
    """What a Loop does: ``kind`` of reduction, and the values outside that it reads."""

    kind: str
    table: ValueView
    indices: ValueView
    starts: ValueView
    ends: ValueView
    weights: ValueView | None


def bag_of(node: NodeView) -> Bag | None:
    """The bags that a Loop goes through; None where it does something else."""
    body = node.subgraphs["body"]
    if len(node.inputs) > 2 or len(body.outputs) != 2 or not _goes_on(node):
        return None
    trip, result = body.inputs[0], body.outputs[1]
    total = result.producer
    kind = None if total is None or total.domain else REDUCTIONS.get(total.op_type)
    if total is None or kind is None or _axes(total) != [0] or total.attributes.get("keepdims", 1):
        return None
    rows, weights = _weighted(total.inputs[0])
    gather = _made(rows, "Gather")
    indices = None if gather is None or gather.attributes.get("axis", 0) else _made(gather.inputs[1], "Slice")
    if gather is None or indices is None or (places := _places(indices, trip)) is None:
        return None
    if weights is not None and _places(weights, trip) != places:
        return None
    outside = [gather.inputs[0], indices.inputs[0], *places, None if weights is None else weights.inputs[0]]
    inner = {v.name for n in body.nodes for v in n.outputs if v is not None} | {v.name for v in body.inputs}
    table, listed, starts, ends, weight = outside
    if any(v is not None and v.name in inner for v in outside) or not (table and listed and starts and ends):
        return None
    return Bag(kind, table, listed, starts, ends, weight)


def _goes_on(node: NodeView) -> bool:
    """Whether the Loop ends with its trips and not before."""
    first, inputs, again = node.inputs[1], node.subgraphs["body"].inputs, node.subgraphs["body"].outputs[0]
    while (step := _made(again, "Identity", "Cast")) is not None and step.inputs[0] is not None:
        again = step.inputs[0]
    return _is_true(first) and (
        again is first or again is inputs[1] or (again.constant is not None and _is_true(again))
    )


def _is_true(value: ValueView | None) -> bool:
    return value is None or (value.constant is not None and bool(value.constant.all()))


def _made(value: ValueView | None, *operators: str) -> NodeView | None:
    node = None if value is None else value.producer
    return node if node is not None and node.domain == "" and node.op_type in operators else None


def _axes(node: NodeView) -> list[int] | None:
    """The axes of a node that has them as an attribute or a constant operand."""
    if "axes" in node.attributes:
        return list(node.attributes["axes"])
    value = node.inputs[1] if len(node.inputs) > 1 else None
    return None if value is None or value.constant is None else value.constant.reshape(-1).tolist()


def _weighted(rows: ValueView | None) -> tuple[ValueView | None, NodeView | None]:
    """Rows without the weights that they are multiplied with, and the Slice that gives these."""
    product = _made(rows, "Mul")
    if product is None:
        return rows, None
    for value, factor in (product.inputs, product.inputs[::-1]):
        column = _made(factor, "Unsqueeze")
        slice_ = None if column is None or _axes(column) != [1] else _made(column.inputs[0], "Slice")
        if slice_ is not None:
            return value, slice_
    return rows, None


def _places(slice_: NodeView, trip: ValueView) -> tuple[ValueView, ValueView] | None:
    """The lists whose elements, of this trip, are a Slice's start and end along its first axis."""
    inputs = [*slice_.inputs, None, None]
    axes, steps = inputs[3], inputs[4]
    if slice_.since_version < 10 or (axes is not None and (axes.constant is None or axes.constant.any())):
        return None
    if steps is not None and (steps.constant is None or (steps.constant != 1).any()):
        return None
    found = []
    for value in inputs[1:3]:
        single = _made(value, "Unsqueeze")
        element = None if single is None or _axes(single) != [0] else _made(single.inputs[0], "Gather")
        if element is None or element.inputs[1] is not trip or element.attributes.get("axis", 0):
            return None
        found.append(element.inputs[0])
    starts, ends = found
    return None if starts is None or ends is None else (starts, ends)


def _supports(node: NodeView) -> str | None:
    bag = bag_of(node)
    if bag is None:
        return "it goes through no bags"
    for value, allowed, rank in (
        (bag.table, {"float32"}, 2), (bag.weights, {"float32"}, 1), (node.outputs[0], {"float32"}, 2), (bag.indices, {"int64"}, 1),
        (bag.starts, {"int64"}, 1), (bag.ends, {"int64"}, 1),
    ):  # fmt: skip
        if value is None:
            continue
        if (reason := typed(value, allowed)) is not None:
            return reason
        if value.shape is None or len(value.shape) != rank:
            return f"'{value.name}' has not {rank} dimensions"
    return None


@lowering("Loop", supports=_supports)
def bags(b: Lowering, node: NodeView) -> None:
    """One row for each bag."""
    bag, (y,) = bag_of(node), node.outputs
    assert bag is not None and y is not None
    table, indices, starts, ends = (b.dense(v) for v in (bag.table, bag.indices, bag.starts, bag.ends))
    weights = None if bag.weights is None else b.dense(bag.weights)
    count, columns = b.shape(y)
    (listed,) = indices.shape
    if count > min(starts.shape[0], ends.shape[0]) or (weights is not None and weights.shape != indices.shape):
        raise Unsupported("a trip has no bag, or an index no weight")
    out = b.output(y)
    read = max(1, columns * max(1, listed // max(1, count)))
    block = max(1, BLOCK // read)
    args: list[int | Ref] = [
        out.ref, table.ref, indices.ref, starts.ref, ends.ref, (indices if weights is None else weights).ref, Ref(STATUS_WORD),
        columns, table.shape[0], listed, count, block, 4 * out.strides[0],
    ]  # fmt: skip
    b.program.call(Bags(bag.kind, weights is not None), args, -(-count // block), count * (5.0 + 0.2 * read))


def by_numpy(node: NodeView) -> Callable[..., Any]:
    """The Loop with NumPy, for its inputs and captures."""
    bag = bag_of(node)
    assert bag is not None
    reduced: Any = {"add": np.sum, "mean": np.mean, "max": np.max}[bag.kind]
    start = {"initial": -np.inf} if bag.kind == "max" else {}
    captures = [v.name for v in node.captures]

    def run(trips: np.ndarray, condition: np.ndarray | None, *captured: np.ndarray) -> np.ndarray:
        given = dict(zip(captures, captured, strict=True))
        values = (bag.table, bag.indices, bag.starts, bag.ends, bag.weights)
        table, indices, starts, ends, weights = (None if v is None else given.get(v.name, v.constant) for v in values)
        assert table is not None and indices is not None and starts is not None and ends is not None
        result = np.empty((max(0, trips.item()), table.shape[1]), table.dtype)
        for trip in range(len(result)):
            part = slice(starts[trip], ends[trip])
            rows = table.take(indices[part], axis=0)
            rows = rows if weights is None else rows * weights[part, None]
            result[trip] = reduced(rows, axis=0, **start)
        return result

    return run
