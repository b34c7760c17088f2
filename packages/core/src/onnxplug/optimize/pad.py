"""Zeros that Pad puts around an image for a convolution alone: the convolution's own padding says the same."""

from __future__ import annotations

from typing import Any

from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value


def fold_padding(graph: Graph, context: Any) -> bool:
    """Pad followed by Conv becomes one Conv with larger ``pads``."""
    gone: set[Node] = set()
    own, results = set(graph.nodes), set(graph.outputs)
    for pad in [n for n in graph.nodes if n.op_type == "Pad" and not n.domain]:
        source, made = pad.inputs[0], pad.outputs[0]
        if source is None or made is None or made in results or len(made.consumers) != 1:
            continue
        conv = made.consumers[0]
        if (
            conv not in own
            or conv.op_type != "Conv"
            or conv.domain
            or conv.inputs[0] is not made
            or made in conv.captures
        ):
            continue
        around = _around(pad)
        if around is None or conv.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            continue
        sides = len(around) // 2
        if sides < 3 or any(around[:2]) or any(around[sides : sides + 2]) or min(around) < 0:
            continue
        added = [*around[2:sides], *around[sides + 2 :]]
        old = conv.attributes.get("pads") if conv.attributes.get("auto_pad", "NOTSET") == "NOTSET" else None
        _set_pads(conv, [a + b for a, b in zip(old or [0] * len(added), added, strict=True)])
        conv.inputs = [source, *conv.inputs[1:]]
        gone.add(pad)
    graph.nodes = [n for n in graph.nodes if n not in gone]
    return bool(gone)


def _set_pads(conv: Node, pads: list[int]) -> None:
    from onnx import AttributeProto  # its helpers would bring the whole package

    told = ("pads", "auto_pad")
    conv.attributes = {**{n: a for n, a in conv.attributes.items() if n not in told}, "pads": pads}
    kept = [proto for proto in conv.attribute_protos if proto.name not in told]
    conv.attribute_protos = [*kept, AttributeProto(name="pads", type=AttributeProto.INTS, ints=pads)]


def _around(pad: Node) -> list[int] | None:
    """How many zeros are put before every dimension, then behind; None where that is not known or it is no zeros that are put there."""
    if pad.attributes.get("mode", "constant") != "constant":
        return None
    if pad.since_version < 11:
        pads = pad.attributes.get("pads")
        return None if pads is None or pad.attributes.get("value", 0.0) != 0 else [int(n) for n in pads]
    pads, value, axes = (_given(pad, n) for n in (1, 2, 3))
    if pads is None or pads.constant is None or axes is not None:
        return None
    if value is not None and (value.constant is None or value.constant.any()):
        return None
    return [int(n) for n in pads.constant.reshape(-1)]


def _given(node: Node, index: int) -> Value | None:
    return node.inputs[index] if index < len(node.inputs) else None
