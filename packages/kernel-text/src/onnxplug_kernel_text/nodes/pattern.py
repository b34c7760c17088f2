"""Attention written out: MatMul, a scale, a mask, Softmax, MatMul, with the transpositions around it, as one region."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxplug.contract import EPFail, GraphView, NodeView, TensorSpec, ValueView
from onnxplug_kernel_text.attention import LARGEST
from onnxplug_kernel_text.layout import dense
from onnxplug_kernel_text.nodes.attention import Problem, View, with_mask
from onnxplug_kernel_text.nodes.call import Ref
from onnxplug_kernel_text.nodes.chains import element
from onnxplug_kernel_text.nodes.launch import text_type

FUSED = "attention"

_ELEMENTS = frozenset({"float", "float16", "bfloat16"})
_PLAIN = (0, 1, 2, 3)
Perm = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Pattern:
    """The nodes of an attention, its operands, and the permutations that give them as (batch, heads, rows, columns): of ``k`` as (batch,
    heads, size, keys), and of the result from that order."""

    nodes: Sequence[NodeView]
    q: ValueView
    k: ValueView
    v: ValueView
    y: ValueView
    q_perm: Perm
    k_perm: Perm
    v_perm: Perm
    y_perm: Perm
    scale: float
    mask: ValueView | None


def patterns(graph: GraphView, taken: Callable[[NodeView], bool]) -> Iterator[Pattern]:
    """Every such attention among nodes that ``taken`` does not name. No node is in two of them."""
    results, used = {id(value) for value in graph.outputs}, set[int]()
    for node in graph.nodes:
        if node.op_type == "Softmax" and not node.domain:
            found = _around(node, results)
            if found is not None and not any(taken(n) or id(n) in used for n in found.nodes):
                used.update(id(n) for n in found.nodes)
                yield found


def _around(softmax: NodeView, results: set[int]) -> Pattern | None:
    """The attention whose weights a Softmax makes."""
    scores, weights = softmax.inputs[0], softmax.outputs[0]
    if scores is None or weights is None or not _fits(scores):
        return None
    if softmax.attributes.get("axis", -1 if softmax.since_version >= 13 else 1) not in (-1, 3):
        return None
    after = only_reader(weights, results)
    if after is None or after.op_type != "MatMul" or after.inputs[0] is not weights:
        return None
    before = _scores(scores, results)
    if before is None:
        return None
    chain, first, scale, mask = before
    q, q_perm, q_nodes = _turned(first.inputs[0], results)
    k, k_perm, k_nodes = _turned(first.inputs[1], results, rows=False)
    v, v_perm, v_nodes = _turned(after.inputs[1], results)
    y, nodes = after.outputs[0], [*q_nodes, *k_nodes, first, *chain, *v_nodes, softmax, after]
    if y is None or q is None or k is None or v is None:
        return None
    if not all(_fits(value) for value in (q, k, v, first.outputs[0], y)) or not (_narrow(q) and _narrow(v)):
        return None
    y_perm = _PLAIN
    behind = only_reader(y, results)
    if behind is not None and behind.op_type == "Transpose" and behind.attributes.get("perm", [])[-1:] == [3]:
        made = behind.outputs[0]
        assert made is not None
        y, y_perm = made, tuple(behind.attributes["perm"])
        nodes.append(behind)
    return Pattern(nodes, q, k, v, y, q_perm, k_perm, v_perm, y_perm, scale, mask)


def _scores(scores: ValueView, results: set[int]) -> tuple[list[NodeView], NodeView, float, ValueView | None] | None:
    """What is between the first product and Softmax, last node first: nodes, the product, its scale, and the mask that is added."""
    chain: list[NodeView] = []
    scale, mask, value = 1.0, None, scores
    while True:
        node = value.producer
        if node is None or node.domain or only_reader(value, results) is None:
            return None
        if node.op_type == "MatMul":
            return chain, node, scale, mask
        a, b = node.inputs if len(node.inputs) == 2 else (None, None)
        if a is None or b is None:
            return None
        chain.append(node)
        factor = _number(b)
        if node.op_type in ("Mul", "Div") and factor:
            scale *= factor if node.op_type == "Mul" else 1 / factor
            value = a
        elif node.op_type == "Add" and mask is None and scale == 1.0 and node.since_version >= 7:
            first = _leads(a)
            mask, value = (b, a) if first else (a, b)
            if mask.shape is None or len(mask.shape) > 4 or element(mask) not in _ELEMENTS:
                return None
        else:
            return None


def _leads(value: ValueView) -> bool:
    """Whether a value is the scores' side of a sum: a product, scaled or not."""
    node = value.producer
    while node is not None and node.op_type in ("Mul", "Div") and node.inputs[0] is not None:
        node = node.inputs[0].producer
    return node is not None and node.op_type == "MatMul"


def _number(value: ValueView) -> float | None:
    """A constant of one element."""
    constant = value.constant
    return (
        float(np.asarray(constant, np.float64).reshape(-1)[0]) if constant is not None and constant.size == 1 else None
    )


def _turned(
    value: ValueView | None, results: set[int], *, rows: bool = True
) -> tuple[ValueView | None, Perm, list[NodeView]]:
    """A value without the Transpose that only it comes from: what is transposed, how, and the node. ``rows``: elements of a row must
    stay neighbours."""
    node = value.producer if value is not None else None
    if value is None or node is None or node.op_type != "Transpose" or only_reader(value, results) is None:
        return value, _PLAIN, []
    perm = tuple(node.attributes.get("perm", (3, 2, 1, 0)))
    return (node.inputs[0], perm, [node]) if len(perm) == 4 and (perm[3] == 3 or not rows) else (value, _PLAIN, [])


def only_reader(value: ValueView | None, results: set[int]) -> NodeView | None:
    """The node that alone reads a value, once, that is no result of the graph."""
    if value is None:
        return None
    readers = list(value.consumers)
    once = len(readers) == 1 and sum(v is value for v in readers[0].inputs) == 1
    return readers[0] if once and id(value) not in results else None


def _narrow(value: ValueView) -> bool:
    """Whether rows are known to fit the kernel's tiles."""
    size = value.shape[3] if value.shape is not None else None
    return isinstance(size, int) and 0 < size <= LARGEST


def _fits(value: ValueView | None) -> bool:
    """A tensor of four dimensions in a type that the kernel has, and no constant."""
    return (
        value is not None
        and value.constant is None
        and value.shape is not None
        and len(value.shape) == 4
        and element(value) in _ELEMENTS
    )


def result_shape(pattern: Pattern, specs: Mapping[str, TensorSpec]) -> tuple[int, ...]:
    """The shape of what a pattern makes."""
    q, v = (
        tuple(specs[value.name].shape[n] for n in perm)
        for value, perm in ((pattern.q, pattern.q_perm), (pattern.v, pattern.v_perm))
    )
    made = (*q[:3], v[3])
    return tuple(made[n] for n in pattern.y_perm)


def described(pattern: Pattern, specs: Mapping[str, TensorSpec], numbers: Mapping[str, int]) -> Problem:
    """The attention that a pattern computes; ``numbers`` are those of its tensors among the arguments. EPFail where the shapes are none
    of an attention's."""

    def view(value: ValueView, perm: Perm) -> tuple[View, tuple[int, ...]]:
        spec = specs[value.name]
        own = dense(spec.shape)
        ref = Ref(numbers[value.name], spec.dtype.itemsize)
        return View(ref, tuple(own[n] for n in perm)), tuple(spec.shape[n] for n in perm)  # type: ignore[arg-type]

    (q, (batch, heads, queries, size)), (turned, (*_, keys)) = (
        view(pattern.q, pattern.q_perm),
        view(pattern.k, pattern.k_perm),
    )
    (v, v_shape), (y, _) = view(pattern.v, pattern.v_perm), view(pattern.y, _inverse(pattern.y_perm))
    k_shape = tuple(specs[pattern.k.name].shape[n] for n in pattern.k_perm)
    unfit = f"attention of {pattern.y.name}: queries {(batch, heads, queries, size)}, keys {k_shape} and values {v_shape} are broadcast"
    if (
        k_shape != (batch, heads, size, keys)
        or v_shape[:3] != (batch, heads, keys)
        or q.strides[3] != 1
        or v.strides[3] != 1
    ):
        raise EPFail(unfit)
    by_batch, by_head, by_column, by_row = turned.strides
    k = View(turned.ref, (by_batch, by_head, by_row, by_column))
    shape = (batch, heads, heads, queries, keys, size, v_shape[3])
    problem: Problem | None = Problem(
        text_type(specs[pattern.q.name].dtype), shape, q, k, v, y, pattern.scale, zeros=False
    )
    assert problem is not None
    if pattern.mask is not None:
        spec = specs[pattern.mask.name]
        problem = with_mask(problem, Ref(numbers[pattern.mask.name], spec.dtype.itemsize), spec, stretched=True)
        if problem is None or problem.mask_keys != keys:
            raise EPFail(f"{unfit}, or the mask {spec.shape} is larger than the scores")
    return problem


def _inverse(perm: Perm) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))
