"""Nodes that do nothing, or whose results nobody reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract.types import TensorType
from onnxplug.graph.infer import infer_parts
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.type_rules import has_more, merge
from onnxplug.graph.value import Value


def drop_dead(graph: Graph, context: Any) -> bool:
    """Remove nodes none of whose outputs is read."""
    live = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(v in live for v in node.outputs if v is not None):
            kept.append(node)
            live.update(node.reads)
    changed = len(kept) != len(graph.nodes)
    graph.nodes = kept[::-1]
    return changed


def drop_identities(graph: Graph, context: Any) -> bool:
    """Let readers of a no-op's output read its input. Where the output is a graph output, the producer of the input makes it
    under its name; the node stays where that cannot be: behind graph inputs, constants, outer values and other outputs."""
    results, own = set(graph.outputs), set(graph.nodes)
    news: dict[Value, Value] = {}
    kept = []
    for node in graph.nodes:
        source, result = _resolved(_passed_on(node), news), node.outputs[0]
        if source is None or result is None or _is_read(node.outputs[1:], results):
            kept.append(node)
            continue
        if result in results:
            if source.producer not in own or source in results:
                kept.append(node)
                continue
            source.name = result.name
            results.add(source)
            _takes_type(source, result)
        source.type = source.type or result.type
        news[result] = source
    graph.nodes = kept
    if news:
        graph.replace(news)
    return bool(news)


def _takes_type(value: Value, result: Value) -> None:
    """What a value that becomes a graph output is said to be: what the model declares counts where nothing else is known."""
    told = merge(result.told or result.type, value.told or value.type)
    type_ = merge(result.type, value.type)
    value.is_noted |= result.is_noted or has_more(type_, value.type)
    value.type, value.told = type_, None if told == type_ else told


def _passed_on(node: Node) -> Value | None:
    """The input that a no-op's output equals, None for other nodes."""
    if node.domain or not node.inputs:
        return None
    if node.op_type == "Where":
        return _chosen(node)
    rule = _NO_OPS.get(node.op_type)
    return node.inputs[0] if rule is not None and rule(node) else None


def _resolved(value: Value | None, news: Mapping[Value, Value]) -> Value | None:
    return None if value is None else news.get(value, value)


def _is_read(values: Sequence[Value | None], results: set[Value]) -> bool:
    return any(v is not None and (v.consumers or v in results) for v in values)


def inline_constant_branches(graph: Graph, context: Any) -> bool:
    """Replace an If whose condition is constant by the nodes of its branch; types of what reads them are inferred again, since
    one branch may say more than both."""
    readers: set[Node] = set()
    changed = False
    for node in list(graph.nodes):
        condition = node.inputs[0] if node.op_type == "If" and node.domain == "" else None
        if condition is None or condition.constant is None or condition.constant.size != 1:
            continue
        branch = node.subgraphs["then_branch" if condition.constant.item() else "else_branch"]
        made = {v for n in branch.nodes for v in n.outputs if v is not None}
        pairs = [(r, b) for r, b in zip(node.outputs, branch.outputs, strict=True) if r is not None]
        if any(r in graph.outputs and (b not in made or branch.outputs.count(b) > 1) for r, b in pairs):
            continue
        at = graph.nodes.index(node)
        graph.nodes[at : at + 1] = branch.nodes
        for inner in branch.nodes:
            for body in inner.subgraphs.values():
                body.parent = graph
        graph.initializers.update({v.name: v for v in branch.initializers.values()})
        for result, inner_result in pairs:
            if result in graph.outputs:
                inner_result.name = result.name
                _takes_type(inner_result, result)
            inner_result.type = inner_result.type or result.type
            readers.update(result.consumers)
        graph.replace(dict(pairs))
        graph.refresh()
        changed = True
    if readers:
        infer_parts(graph, readers)
    return changed


# ---- what is a no-op


def _dropout(node: Node) -> bool:
    if node.since_version < 7:
        return bool(node.attributes.get("is_test", 0))
    training = node.inputs[2] if len(node.inputs) > 2 else None
    return training is None or (training.constant is not None and not training.constant.any())


def _same_type(node: Node) -> bool:
    source, result = node.inputs[0], node.outputs[0]
    return (
        source is not None and result is not None and source.type is not None and str(source.type) == str(result.type)
    )


def _same_shape(node: Node) -> bool:
    source, result = node.inputs[0], node.outputs[0]
    if (
        source is None
        or result is None
        or not (isinstance(source.type, TensorType) and isinstance(result.type, TensorType))
    ):
        return False
    inferred = all(v is None or v.is_constant for v in node.inputs[1:])  # else the shape is what the model declares
    return inferred and source.type.static_shape is not None and source.type.static_shape == result.type.static_shape


def _transpose(node: Node) -> bool:
    perm = node.attributes.get("perm")
    return perm is not None and list(perm) == list(range(len(perm)))


def _pad(node: Node) -> bool:
    pads: Any = node.attributes.get("pads", node.attributes.get("paddings"))
    if pads is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        pads = node.inputs[1].constant
    return pads is not None and not np.any(pads)


def _chosen(node: Node) -> Value | None:
    """The operand of which a Where with a constant condition takes every element, and that has the result's shape."""
    condition, yes, no = node.inputs
    test = None if condition is None else condition.constant
    if test is None or test.size == 0 or (test.any() and not test.all()):
        return None
    taken, other = (yes, no) if test.all() else (no, yes)
    if (
        taken is None
        or other is None
        or not (isinstance(taken.type, TensorType) and isinstance(other.type, TensorType))
    ):
        return None
    whole, beside = taken.type.shape, other.type.shape
    fits = whole is not None and beside is not None and all(_stretches(dims, whole) for dims in (test.shape, beside))
    return taken if fits else None


def _stretches(dims: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Whether a shape is broadcast to another one, which does not change: dimensions are 1 or known to be the same."""
    behind = whole[len(whole) - len(dims) :]
    return len(dims) <= len(whole) and all(
        d == 1 or (isinstance(d, int) and d == w) for d, w in zip(dims, behind, strict=True)
    )


def _single(node: Node) -> bool:
    return len(node.inputs) == 1


_NO_OPS: dict[str, Callable[[Node], bool]] = {
    "Identity": _same_type, "Dropout": _dropout, "Cast": _same_type, "CastLike": _same_type, "Transpose": _transpose, "Pad": _pad,
    "Reshape": _same_shape, "Flatten": _same_shape, "Expand": _same_shape, "Concat": _single, "Sum": _single, "Max": _single,
    "Min": _single, "Mean": _single,
}  # fmt: skip
