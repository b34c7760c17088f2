"""Constants that are dequantized and then transposed, as layers of torch are exported whose weights (outputs, inputs) were quantized.

They are transposed first, so that providers find what a product multiplies behind a DequantizeLinear, as quantizers of models write it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.sources import Stored, Transposed
from onnxplug.graph.value import Value

_DOMAINS = frozenset({"", "com.microsoft"})


def turn_constants(graph: Graph, context: Any) -> bool:
    """DequantizeLinear of a constant followed by Transpose becomes DequantizeLinear of the transposed constant."""
    gone: set[Node] = set()
    own, results = set(graph.nodes), set(graph.outputs)
    for turn in [n for n in graph.nodes if n.op_type == "Transpose" and not n.domain]:
        made, (result,) = turn.inputs[0], turn.outputs
        maker = None if made is None else made.producer
        if made is None or result is None or maker not in own or made in results or len(made.consumers) != 1:
            continue
        assert maker is not None
        if _turned(graph, maker, turn):
            result.producer, maker.outputs = maker, [result]
            gone.add(turn)
    graph.nodes = [n for n in graph.nodes if n not in gone]
    return bool(gone)


def _turned(graph: Graph, maker: Node, turn: Node) -> bool:
    """Have a DequantizeLinear of constants make what a Transpose behind it makes; whether it could."""
    if maker.op_type != "DequantizeLinear" or maker.domain not in _DOMAINS:
        return False
    given = [v for v in maker.inputs if v is not None]
    arrays = [v.constant for v in given if v.is_constant]
    if len(arrays) != len(given) or arrays[0] is None or arrays[0].ndim < 2:
        return False
    rank = arrays[0].ndim
    order = tuple(turn.attributes.get("perm") or range(rank)[::-1])
    whole = rank if maker.attributes.get("block_size", 0) else None  # scales in blocks have all dimensions, others one
    axis = int(maker.attributes.get("axis", 1))
    if not -rank <= axis < rank or any(a is None or a.ndim not in (0, whole or 1) for a in arrays[1:]):
        return False
    maker.inputs = [
        v if v is None or v.constant is None or v.constant.ndim != rank else _moved(graph, v, order)
        for v in maker.inputs
    ]
    _set_axis(maker, order.index(axis % rank))
    return True


def _moved(graph: Graph, value: Value, order: tuple[int, ...]) -> Value:
    """The constant with its dimensions in another order."""
    assert value.constant is not None
    array = np.ascontiguousarray(value.constant.transpose(order))
    array.flags.writeable = False
    return graph.add_constant(value.name, array, Transposed(value, order) if isinstance(value.source, Stored) else None)


def _set_axis(node: Node, axis: int) -> None:
    from onnx import AttributeProto  # its helpers would bring the whole package

    if node.since_version < 13 and not node.domain:
        return  # one scale for all
    node.attributes = {**node.attributes, "axis": axis}
    kept = [proto for proto in node.attribute_protos if proto.name != "axis"]
    node.attribute_protos = [*kept, AttributeProto(name="axis", type=AttributeProto.INT, i=axis)]
