"""Operator Gradient (ONNX operator spec, ai.onnx.preview.training, Gradient-1) as nodes that compute the derivatives.

A Gradient node names tensors ``xs``, ``zs`` and ``y`` of the graph around it; building gives it the sub-graph from
those to ``y`` as nested graph ``BODY``, in which its inputs are put for ``xs`` and ``zs``. Here the body is
differentiated in reverse mode and takes the node's place. Where ``y`` has more than one element, the derivative is that
of their sum.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.graph import derivatives_elementwise, derivatives_products, derivatives_shape  # noqa: F401 (enter their rules)
from onnxplug.graph.build import GRADIENT_BODY as BODY
from onnxplug.graph.build import SEPARATOR, arrange, is_gradient
from onnxplug.graph.calculus import CONSTANT, RULES, Underivable, Writer, is_float
from onnxplug.graph.infer import infer_graph
from onnxplug.graph.inline import function_nodes
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value


def gradient_nodes(graph: Graph, node: Node) -> list[Node]:
    """The nodes that compute what a Gradient node of ``graph`` does and make its outputs. NotImplemented when an operator on
    the way from ``xs`` to ``y`` has no derivative."""
    body = node.subgraphs[BODY]
    xs = body.inputs[: len(node.attributes["xs"])]
    infer_graph(body)
    try:
        _open(body, xs)
        t = Writer(body, node.name + SEPARATOR, node.origin, _active(body, xs))
        adjoints = _adjoints(t, body)
        wanted = [(x, made) for x, made in zip(xs, node.outputs, strict=False) if made is not None]
        for x, made in wanted:
            t("Identity", adjoints.get(x) or t.full(x, 0))
            body.nodes[-1].outputs = [made]
    except Underivable as error:
        raise _missing(node, str(error)) from None
    body.outputs = [made for _, made in wanted]
    return _spliced(graph, node, body)


def _open(body: Graph, xs: list[Value]) -> None:
    """Replace nodes without a rule that lie between ``xs`` and the result by the nodes of their functions."""
    while True:
        _prune(body)
        active = _active(body, xs)
        closed = [n for n in body.nodes if _is_between(n, active) and (n.domain or n.op_type not in RULES)]
        if not closed:
            return
        news = {}
        for node in closed:
            inner = gradient_nodes(body, node) if is_gradient(node) else function_nodes(body, node)
            if inner is None:
                raise Underivable(f"operator {node.label} (node '{node.name}') has no derivative rule")
            news[node] = inner
        body.nodes = [new for node in body.nodes for new in news.get(node, (node,))]
        arrange(body)
        infer_graph(body)


def _prune(body: Graph) -> None:
    """Keep what the results need."""
    needed = set(body.outputs)
    kept = []
    for node in reversed(body.nodes):
        if not needed.isdisjoint(v for v in node.outputs if v is not None):
            kept.append(node)
            needed.update(node.reads)
    body.nodes = kept[::-1]
    arrange(body)


def _active(body: Graph, xs: Iterable[Value]) -> set[Value]:
    """The floating-point values that depend on ``xs``."""
    active = {x for x in xs if is_float(x)}
    for node in body.nodes:
        if node.op_type not in CONSTANT and not active.isdisjoint(node.reads):
            active.update(v for v in node.outputs if v is not None and is_float(v))
    return active


def _is_between(node: Node, active: set[Value]) -> bool:
    return not active.isdisjoint(v for v in node.outputs if v is not None)


def _adjoints(t: Writer, body: Graph) -> dict[Value, Value]:
    """The adjoint of each active value, by nodes appended to the body."""
    result = body.outputs[0]
    forward, found = list(body.nodes), {result: t.full(result, 1)} if result in t.active else {}
    for node in reversed(forward):
        made = [None if v is None else found.get(v) for v in node.outputs]
        if not any(made):
            continue
        try:
            adjoints = RULES[node.op_type](t, node, made)
        except Underivable as error:
            raise Underivable(f"operator {node.label} (node '{node.name}'): {error}") from None
        for value, adjoint in zip(node.inputs, adjoints, strict=False):
            if value in t.active and value is not None and adjoint is not None:
                found[value] = t("Add", found[value], adjoint) if value in found else adjoint
    return found


def _spliced(graph: Graph, node: Node, body: Graph) -> list[Node]:
    """The body's nodes and constants as parts of ``graph``, reading the node's inputs."""
    _prune(body)
    body.replace(dict(zip(body.inputs, (v for v in node.inputs if v is not None), strict=True)))
    for inner in body.nodes:
        for nested in inner.subgraphs.values():
            nested.parent = graph
    graph.initializers.update(body.initializers)
    return body.nodes


def _missing(node: Node, why: str) -> Exception:
    return OrtNotImplemented(f"Could not differentiate for {node.label} node with name '{node.name}': {why}")
