"""Common subexpressions: nodes that compute the same from the same become one."""

from __future__ import annotations

from typing import Any

from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.schemas import CONTROL_FLOW, RANDOM
from onnxplug.graph.value import Value

_APART = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""One DequantizeLinear per consumer is what quantizing providers look for."""


def merge_common(graph: Graph, context: Any) -> bool:
    """Let later duplicates read the first one's outputs."""
    seen: dict[tuple[Any, ...], Node] = {}
    results = set(graph.outputs)
    merged: dict[Value, Value] = {}
    kept = []
    for node in graph.nodes:
        kept.append(node)
        if node.op_type in RANDOM | CONTROL_FLOW | _APART or node.subgraphs or node.domain not in ("", "ai.onnx.ml"):
            continue
        reads = tuple(None if v is None else id(merged.get(v, v)) for v in node.inputs)
        key = (
            node.domain, node.op_type, node.since_version, reads, tuple(v is None for v in node.outputs),
            node.signature,
        )  # fmt: skip
        first = seen.setdefault(key, node)
        if first is node or any(v in results for v in node.outputs):
            continue
        pairs = zip(node.outputs, first.outputs, strict=True)
        merged.update({mine: theirs for mine, theirs in pairs if mine is not None and theirs is not None})
        kept.pop()
    if merged:
        graph.nodes = kept
        graph.replace(merged)
    return bool(merged)
