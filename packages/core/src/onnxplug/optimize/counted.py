"""Loops that count their trips: what they count is the number of the trip, and how many there will be is known before the first.

Exporters write ``for k in range(n)`` as a Loop that carries k and ends when k + 1 is no longer below n. A Loop of a known number of
trips whose body reads its trip's number runs without coming back for each of them, and shapes follow from the number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.graph.infer import infer_parts
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.making import plain_node
from onnxplug.graph.value import Value
from onnxplug.optimize.offsets import number, offset

_BELOW = {"Less": 0, "LessOrEqual": 1}
_ABOVE = {"Greater": 0, "GreaterOrEqual": 1}
_FROM = 12
"""Opset from which Max and Min take integers."""
_MOST = 2**63 - 1


def count_trips(graph: Graph, context: Any) -> bool:
    """Give Loops that end when a counter reaches a limit a number of trips, and let bodies read counters as what they are: their
    beginning and so many steps."""
    changed: set[Node] = set()
    if (graph.opset("") or 0) < _FROM:
        return False
    for node in list(graph.nodes):
        if node.op_type == "Loop" and not node.domain:
            before = len(graph.nodes)
            if _ends_by_count(graph, node) | _read_numbers(graph, node):
                changed.update(graph.nodes[graph.nodes.index(node) - (len(graph.nodes) - before) :])
                graph.refresh()
    if changed:
        infer_parts(graph, {node for node in changed if node.op_type == "Loop"})
    return bool(changed)


def _counters(node: Node) -> dict[Value, tuple[int, int, int]]:
    """Carried values that begin with a known integer and grow by one: place, first, step."""
    body, found = node.subgraphs["body"], {}
    for place, (given, inside) in enumerate(zip(node.inputs[2:], body.inputs[2:], strict=True)):
        first = number(given)
        if first is None or given is None or given.shape != () or inside.dtype != given.dtype:
            continue
        base, step = offset(body.outputs[1 + place])
        if base is inside and step and _is_scalar(body.outputs[1 + place], inside):
            found[inside] = place, first, step
    return found


def _is_scalar(value: Value, inside: Value) -> bool:
    """Whether nothing on the way from ``inside`` gives it axes or another type."""
    while value is not inside:
        node = value.producer
        if node is None or node.op_type not in ("Add", "Sub", "Identity"):
            return False
        (value,) = [v for v in node.inputs if v is not None and number(v) is None] or [inside]
        if any(v is not None and number(v) is not None and v.shape != () for v in node.inputs):
            return False
    return True


def _ends_by_count(graph: Graph, node: Node) -> bool:
    """Whether the Loop's condition is a counter's, which then is a number of trips."""
    body = node.subgraphs["body"]
    found = _limit(node)
    if found is None:
        return False
    limit, first, step, ahead, closed = found
    if ahead == step and _begins_alike(node, limit, first, closed):
        least, more = 0, closed - first
        node.inputs[1] = graph.add_constant(f"{node.name}_true", np.array(True))
    else:
        least, more = 1, closed - first - ahead + step
    # the trip after number t follows if first + t * step + ahead is still below the limit
    count = _number_of(graph, node, limit, more, least, step)
    if node.inputs[0] is not None:
        count = _added(graph, node, "Min", [count, node.inputs[0]])
    node.inputs[0] = count
    body.outputs[0] = body.add_constant(f"{node.name}_goes_on", np.array(True))
    return True


def _limit(node: Node) -> tuple[Value, int, int, int, int] | None:
    """For a Loop that goes on while a counter is below a limit: the limit, where the counter begins, its step, how far ahead of the
    trip's counter the one that is compared is, and 1 where the counter may be the limit."""
    body = node.subgraphs["body"]
    again = body.outputs[0].producer
    sides = _sides(again) if again is not None and again in body.nodes else None
    if sides is None:
        return None
    small, limit, closed = sides
    inner = {v for v in body.values() if v not in body.initializers.values()}
    base, ahead = offset(small)
    if base is None or (counter := _counters(node).get(base)) is None:
        return None
    if limit in inner or limit.dtype is None or limit.shape not in ((), (1,)):
        return None
    _, first, step = counter
    if step < 1 or limit.dtype != base.dtype or max(abs(first), step, abs(ahead)) > _MOST >> 2:
        return None
    if limit.name in body.initializers and limit.constant is None:
        return None
    return limit, first, step, ahead, closed


def _sides(node: Node) -> tuple[Value, Value, int] | None:
    """What a comparison wants to be below what, and 1 where it may be equal."""
    for kinds, order in ((_BELOW, 1), (_ABOVE, -1)):
        if node.domain == "" and node.op_type in kinds:
            small, large = node.inputs[::order]
            return None if small is None or large is None else (small, large, kinds[node.op_type])
    return None


def _begins_alike(node: Node, limit: Value, first: int, closed: int) -> bool:
    """Whether the Loop begins if its first counter passes the same comparison."""
    begin = node.inputs[1].producer if node.inputs[1] is not None else None
    sides = None if begin is None else _sides(begin)
    return sides is not None and number(sides[0]) == first and sides[1] is limit and sides[2] == closed


def _number_of(graph: Graph, node: Node, limit: Value, more: int, least: int, step: int) -> Value:
    """How many trips there are: limit + more in steps, but ``least``."""
    known = number(limit)
    if known is not None:
        return graph.add_constant(f"{node.name}_trips", np.array(min(max(least, -(-(known + more) // step)), _MOST)))
    count, added = limit, more + step - 1

    def constant(value: int) -> Value:
        return graph.add_constant(f"{node.name}_part", np.array(value))

    if count.dtype != np.int64:
        count = _added(graph, node, "Cast", [count], to=7)
    elif added:  # what the sum has no room for makes no difference: nobody runs so many trips
        side, most = ("Min", _MOST - added) if added > 0 else ("Max", -_MOST - added)
        count = _added(graph, node, side, [count, constant(most)])
    if added:
        count = _added(graph, node, "Add", [count, constant(added)])
    if step > 1:
        count = _added(graph, node, "Max", [count, constant(0)])
        count = _added(graph, node, "Div", [count, constant(step)])
    return _added(graph, node, "Max", [count, constant(least)])


def _added(graph: Graph, node: Node, op_type: str, inputs: list[Value | None], **ints: int) -> Value:
    """What a new node before the Loop gives."""
    result = Value(graph.names.value(f"{node.name}_trips"))
    graph.nodes.insert(graph.nodes.index(node), plain_node(graph, node, op_type, inputs, [result], **ints))
    return result


def _read_numbers(graph: Graph, node: Node) -> bool:
    """Whether the body read counters, for which it reads the trip's number now; counters that nobody asks for are not carried."""
    body, changed = node.subgraphs["body"], False
    for inside, (place, first, step) in sorted(_counters(node).items(), key=lambda item: -item[1][0]):
        result = node.outputs[place]
        unread = result is None or not (result.consumers or result in graph.outputs)
        readers = [n for n in inside.consumers if n is not body.outputs[1 + place].producer]
        if not readers and not unread and inside not in body.outputs:
            continue
        body.replace({inside: _numbered(body, node, inside, first, step)})
        if unread:
            del node.inputs[2 + place], node.outputs[place], body.inputs[2 + place], body.outputs[1 + place]
        body.refresh()
        changed = True
    return changed


def _numbered(body: Graph, node: Node, inside: Value, first: int, step: int) -> Value:
    """The counter of a trip, made of the trip's number."""
    made, added = body.inputs[0], []
    for op_type, other, neutral in (("Mul", step, 1), ("Add", first, 0)):
        if other != neutral:
            result = Value(body.names.value(f"{inside.name}_number"))
            constant = body.add_constant(f"{inside.name}_part", np.array(other))
            added.append(plain_node(body, node, op_type, [made, constant], [result]))
            made = result
    if inside.dtype != np.int64:
        result = Value(body.names.value(f"{inside.name}_number"))
        added.append(plain_node(body, node, "Cast", [made], [result], to=6))
        made = result
    body.nodes[:0] = added
    return made
