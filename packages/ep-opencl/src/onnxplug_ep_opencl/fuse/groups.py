"""Which nodes are fused: groups of element-wise operators, each with at most one product before it whose result only the group reads; and
such groups with the Concat that alone reads their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from onnxplug.contract import GraphView, NodeView, ValueView, convex_groups
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.window import is_product
from onnxplug_kernel_text.nodes.chains import fusable, quantizes

FUSED = "opencl"
JOINED = "opencl_joined"
HEADS = frozenset({"Conv", "MatMul", "Gemm"})


def groups(graph: GraphView, takes: Callable[[NodeView], bool], target: Target) -> Iterator[tuple[str, list[NodeView]]]:
    """Groups of at least two nodes, in the graph's order, of those that the provider ``takes``; each with its kind, ``FUSED`` or
    ``JOINED``. A Pow is one by itself, too: text knows its exponent then."""

    def leads(node: NodeView) -> bool:
        made = node.op_type in HEADS and not node.domain and takes(node)
        return made and (node.op_type != "Conv" or is_product(node, target))

    heads = {id(node): node for node in graph.nodes if leads(node)}
    leaving = {value.name for value in graph.outputs}
    made: list[list[NodeView]] = []
    for group in convex_groups(graph, lambda node: (fusable(node) or quantizes(node)) and takes(node)):
        inside = {id(node) for node in group}
        head = next((h for node in group for h in _before(node, heads, inside, leaving)), None)
        if head is not None:
            # All that the head reads comes before it, and all that reads it is in the group: the group stays convex.
            del heads[id(head)]
            made.append([head, *group])
        else:
            made.append(group)
    made += [[head] for head in heads.values()]
    yield from _joined(graph, made, leaving, takes)


def _joined(
    graph: GraphView, made: Sequence[list[NodeView]], leaving: set[str], takes: Callable[[NodeView], bool]
) -> Iterator[tuple[str, list[NodeView]]]:
    """The groups, those that only a Concat reads together with it. Every path out of such a union leads through the Concat, which comes
    behind all of it: it is convex, and no two of them are on a circle."""
    group_of = {id(node): group for group in made for node in group}
    used: set[int] = set()
    for concat in graph.nodes:
        if concat.op_type != "Concat" or concat.domain or not takes(concat):
            continue
        parts: list[list[NodeView]] = []
        for value in concat.inputs:
            group = None if value is None or value.producer is None else group_of.get(id(value.producer))
            if group is not None and value is not None and _only(group, value, leaving) and id(group) not in used:
                used.add(id(group))
                parts.append(group)
        if parts:
            yield JOINED, [*(node for part in parts for node in part), concat]
    for group in made:
        if id(group) not in used and (len(group) > 1 or group[0].op_type == "Pow"):
            yield FUSED, group


def _only(group: Sequence[NodeView], value: ValueView, leaving: set[str]) -> bool:
    """Whether ``value`` is all that leaves the group, and one node reads it, once."""
    inside = {id(node) for node in group}
    out = [
        v
        for node in group
        for v in node.outputs
        if v is not None and (v.name in leaving or any(id(c) not in inside for c in v.consumers))
    ]
    alone = [v.name for v in out] == [value.name] and value.name not in leaving
    readers = [c for c in value.consumers if id(c) not in inside]
    return alone and len(readers) == 1 == [v is not None and v.name for v in readers[0].inputs].count(value.name)


def members(concat: NodeView, nodes: Sequence[NodeView]) -> Iterator[tuple[ValueView, list[NodeView]]]:
    """Of a ``JOINED`` region its groups, each with the value that ``concat`` reads of it."""
    home = {id(node) for node in nodes}
    for value in concat.inputs:
        if value is None or value.producer is None or id(value.producer) not in home:
            continue
        found: set[int] = set()
        waiting = [value.producer]
        while waiting:
            node = waiting.pop()
            found.add(id(node))
            producers = (v.producer for v in node.inputs if v is not None)
            waiting += [p for p in producers if p is not None and id(p) in home and id(p) not in found]
        yield value, [node for node in nodes if id(node) in found]


def _before(node: NodeView, heads: dict[int, NodeView], inside: set[int], leaving: set[str]) -> list[NodeView]:
    """Heads whose result the node reads and nothing outside the group does."""
    found = []
    for value in node.inputs:
        head = None if value is None or value.producer is None else heads.get(id(value.producer))
        if head is None or value is None or value.name in leaving:
            continue
        result = node.outputs[0]
        same = (
            result is not None
            and value.shape is not None
            and value.shape == result.shape
            and value.dtype == result.dtype
        )
        if same and all(id(consumer) in inside for consumer in value.consumers):
            found.append(head)
    return found
