"""Values that a loop carries without changing them, read from outside instead; and its condition, which is true in every trip.

Exporters of while loops (tf2onnx) carry whatever a body reads, weights too: each trip copies them, and no provider sees that they are
constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.graph.infer import infer_parts
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value


def know_conditions(graph: Graph, context: Any) -> bool:
    """Let the bodies of Loops read that their condition is true, as it is in every trip: those that hand it on are loops of a known
    number of trips."""
    changed = False
    for node in graph.nodes:
        if node.op_type != "Loop" or node.domain:
            continue
        body = node.subgraphs["body"]
        condition = body.inputs[1]
        if condition.consumers or condition in body.outputs:
            true = body.add_constant(f"{condition.name}_true", np.array(True))
            body.replace({condition: true})
            changed = True
    if changed:
        graph.refresh()
    return changed


def lift_invariants(graph: Graph, context: Any) -> bool:
    """Let the bodies of Loops capture what all trips hand on as they were given it. Readers of such a result read what went in; a
    result of the graph stays as it is."""
    changed: set[Node] = set()
    for node in graph.nodes:
        if node.op_type != "Loop" or node.domain:
            continue
        body = node.subgraphs["body"]
        for index in reversed(range(len(node.inputs) - 2)):
            before, inside, result = node.inputs[2 + index], body.inputs[2 + index], node.outputs[index]
            if before is None or result in graph.outputs or _origin(body.outputs[1 + index]) is not inside:
                continue
            del node.inputs[2 + index], node.outputs[index], body.inputs[2 + index], body.outputs[1 + index]
            body.replace({inside: before})
            if result is not None:
                changed.update(result.consumers)
                graph.replace({result: before})
            changed.add(node)
    if changed:
        graph.refresh()
        infer_parts(graph, changed)
    return bool(changed)


def _origin(value: Value) -> Value:
    """What Identity nodes hand on."""
    while value.producer is not None and value.producer.op_type == "Identity" and value.producer.domain == "":
        (before,) = value.producer.inputs
        assert before is not None
        value = before
    return value
