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
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.stretches import Stretch, axes_of, made_by, reduce_stretches, stretch_of
from onnxplug_ep_cpu.codegen.lower.support import ranked
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported


@record(frozen=True, slots=True)
class Bag:
    """What a Loop does: the stretch that a trip reduces, and the lists outside of their starts and ends."""

    stretch: Stretch
    starts: ValueView
    ends: ValueView

    @property
    def outside(self) -> tuple[ValueView | None, ...]:
        """What it reads from outside."""
        return self.stretch.table, self.stretch.indices, self.starts, self.ends, self.stretch.weights


def bag_of(node: NodeView) -> Bag | None:
    """The bags that a Loop goes through; None where it does something else."""
    body = node.subgraphs["body"]
    if len(node.inputs) > 2 or len(body.outputs) != 2 or not _goes_on(node):
        return None
    trip, total = body.inputs[0], body.outputs[1].producer
    stretch = stretch_of(total)
    if stretch is None or total is None or total.attributes.get("keepdims", 1):
        return None
    starts, ends = (_listed(place, trip) for place in (stretch.start, stretch.end))
    if starts is None or ends is None:
        return None
    bag = Bag(stretch, starts, ends)
    inner = {v.name for n in body.nodes for v in n.outputs if v is not None} | {v.name for v in body.inputs}
    return None if any(v is not None and v.name in inner for v in bag.outside) else bag


def _goes_on(node: NodeView) -> bool:
    """Whether the Loop ends with its trips and not before."""
    first, inputs, again = node.inputs[1], node.subgraphs["body"].inputs, node.subgraphs["body"].outputs[0]
    while (step := made_by(again, "Identity", "Cast")) is not None and step.inputs[0] is not None:
        again = step.inputs[0]
    return _is_true(first) and (
        again is first or again is inputs[1] or (again.constant is not None and _is_true(again))
    )


def _is_true(value: ValueView | None) -> bool:
    return value is None or (value.constant is not None and bool(value.constant.all()))


def _listed(place: ValueView, trip: ValueView) -> ValueView | None:
    """The list whose element, of this trip, is a place."""
    single = made_by(place, "Unsqueeze")
    element = None if single is None or axes_of(single) != [0] else made_by(single.inputs[0], "Gather")
    if element is None or element.inputs[1] is not trip or element.attributes.get("axis", 0):
        return None
    return element.inputs[0]


def _supports(node: NodeView) -> str | None:
    bag = bag_of(node)
    if bag is None:
        return "it goes through no bags"
    operands = (node.outputs[0], {"float32"}, 2), (bag.starts, {"int64"}, 1), (bag.ends, {"int64"}, 1)
    for reason in (ranked(*operand) for operand in operands):
        if reason is not None:
            return reason
    return bag.stretch.unfit()


@lowering("Loop", supports=_supports)
def bags(b: Lowering, node: NodeView) -> None:
    """One row for each bag."""
    bag, (y,) = bag_of(node), node.outputs
    assert bag is not None and y is not None
    starts, ends, count = b.dense(bag.starts), b.dense(bag.ends), b.shape(y)[0]
    if count > min(starts.shape[0], ends.shape[0]) or not bag.stretch.is_weighed(b):
        raise Unsupported("a trip has no bag, or an index no weight")
    out = b.output(y)
    reduce_stretches(b, bag.stretch, starts, ends, count, out, out.strides[0])


def by_numpy(node: NodeView) -> Callable[..., Any]:
    """The Loop with NumPy, for its inputs and captures."""
    bag = bag_of(node)
    assert bag is not None
    kind = bag.stretch.kind
    captures = [v.name for v in node.captures]

    def run(trips: np.ndarray, condition: np.ndarray | None, *captured: np.ndarray) -> np.ndarray:
        given = dict(zip(captures, captured, strict=True))
        table, indices, starts, ends, weights = (
            None if v is None else given.get(v.name, v.constant) for v in bag.outside
        )
        assert table is not None and starts is not None and ends is not None
        result = np.empty((max(0, trips.item()), table.shape[1]), table.dtype)
        for trip in range(len(result)):
            part = slice(starts[trip], ends[trip])
            rows = table[part] if indices is None else table.take(indices[part], axis=0)
            rows = rows if weights is None else rows * weights[part, None]
            result[trip] = rows.max(axis=0, initial=-np.inf) if kind == "max" else rows.sum(axis=0)
            if kind == "mean":
                result[trip] /= max(1, len(rows))
        return result

    return run
