"""L2 and L3: mutants whose claim is not what they do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from onnxplug.contract import (
    Claim,
    CompiledRegion,
    Decline,
    GraphView,
    Inline,
    KernelDef,
    KernelLookup,
    KernelRegistry,
    NodeView,
    Region,
    SessionContext,
    ValueView,
)
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import HOST, subject
from onnxplug_testkit.mutants.compiling import Compiling
from onnxplug_testkit.subject import Subject


class _Empty(ReferenceProvider):
    def get_kernel_registry(self) -> KernelRegistry:
        return KernelRegistry()


@mutant("kernels.claims_something", "Add")
def claims_nothing() -> Subject:
    """Has a registry without kernels."""
    return subject(_Empty)


class _Poor(ReferenceProvider):
    def get_kernel_registry(self) -> KernelRegistry:
        return KernelRegistry(d for d in super().get_kernel_registry() if d.op_type == "Neg")


@mutant("kernels.profile", "Neg")
def claims_too_little() -> Subject:
    """Has one operator of the profile it is to keep."""
    return subject(_Poor)


class _Refusing(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        yield from (Decline(node, "not today") for node in graph.nodes)


@mutant("kernels.every_cell_is_proven", "Neg")
def takes_nothing() -> Subject:
    """Registers kernels and declines every node."""
    return subject(_Refusing)


class _Silent(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        for node in graph.nodes:
            rank = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
            if isinstance(kernels.kernel_for(node), KernelDef) and not (rank is not None and len(rank) > 2):
                yield Claim([node])


@mutant("kernels.declines_say_why", "Neg")
def falls_back_silently() -> Subject:
    """Leaves tensors of more than two dimensions to others without a word."""
    return subject(_Silent)


class _Opening(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        for node in graph.nodes:
            if node.op_type == "Clip":
                yield Inline(node)
            elif isinstance(kernels.kernel_for(node), KernelDef):
                yield Claim([node])


@mutant("kernels.placement", "Clip")
def opens_what_it_claims() -> Subject:
    """Registers a kernel for Clip and has it replaced by its body instead."""
    return subject(_Opening, HOST)


_asked = itertools.count()


class _Fickle(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        late = next(_asked) % 2
        for answer in super().get_capability(graph, kernels):
            if late and isinstance(answer, Claim):
                yield Decline(answer.nodes[0], "asked too often")
            else:
                yield answer


@mutant("graph.capability_is_pure")
def fickle_claims() -> Subject:
    """Answers otherwise the second time."""
    return subject(_Fickle)


class _Cyclic(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        if len(graph.nodes) < 3:
            yield from super().get_capability(graph, kernels)
            return
        yield Claim([graph.nodes[0], graph.nodes[-1]], fused="ends")
        yield from (Claim([node]) for node in graph.nodes[1:-1])

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        raise NotImplementedError("never reached")


@mutant("graph.claims_are_sound")
def cyclic_claim() -> Subject:
    """Claims the first and the last node as one region, with a path between them outside it."""
    return subject(_Cyclic)


class _Tired(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        for number, answer in enumerate(super().get_capability(graph, kernels)):
            if number < 5:
                yield answer


@mutant("graph.declines_say_why")
def tires_of_large_graphs() -> Subject:
    """Answers for the first five nodes of a graph and leaves the rest without a word."""
    return subject(_Tired)


class _Sated(ReferenceProvider):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self._graphs: list[GraphView] = []

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        if all(graph is not known for known in self._graphs):
            self._graphs.append(graph)
        for answer in super().get_capability(graph, kernels):
            if isinstance(answer, Claim) and graph is not self._graphs[0]:
                yield Decline(answer.nodes[0], "there is enough to do")
            else:
                yield answer


@mutant("graph.capability_is_pure")
def is_sated() -> Subject:
    """Takes nodes of the first graph that it is asked about and of no other."""
    return subject(_Sated)


class _Alone(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        for answer in super().get_capability(graph, kernels):
            if isinstance(answer, Claim) and len(graph.nodes) > 1:
                yield Decline(answer.nodes[0], "not worth it in a graph this large")
            else:
                yield answer


@mutant("graph.random_graphs")
def works_alone() -> Subject:
    """Takes the only node of a graph and, of a graph of several, none."""
    return subject(_Alone)


class _Descending(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        self._depth(graph.outputs[0])
        yield from super().get_capability(graph, kernels)

    def _depth(self, value: ValueView | None) -> int:
        producer = None if value is None else value.producer
        return 0 if producer is None else 1 + max(map(self._depth, producer.inputs), default=0)


@mutant("graph.long_chains")
def descends_node_by_node() -> Subject:
    """Goes up a graph by a function that calls itself for each node."""
    return subject(_Descending)


class _Shallow(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        for answer in super().get_capability(graph, kernels):
            if graph.parent is not None and isinstance(answer, Claim):
                yield Decline(answer.nodes[0], "nested graphs are not supported")
            else:
                yield answer


@mutant("graph.control_flow")
def ignores_bodies() -> Subject:
    """Takes no node of a nested graph."""
    return subject(_Shallow)


class _Particular(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        known: dict[str, Any] = dict.fromkeys(
            ("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Exp", "Identity", "Add", "Mul", "Sub")
        )
        for node in graph.nodes:
            if known.get(node.op_type, ...) is ...:
                raise KeyError(node.op_type)
            yield Claim([node])


@mutant("graph.others_take_the_rest")
def stumbles_over_strangers() -> Subject:
    """Raises when a graph holds an operator it does not know."""
    return subject(_Particular)


class _Presuming(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        for node in graph.nodes:
            first: Any = node.inputs[0]
            if len(first.shape) >= 0:
                yield Claim([node])


@mutant("robust.odd_graphs")
def presumes_shapes() -> Subject:
    """Raises when the rank of a value is not known."""
    return subject(_Presuming)


class _Twice(Compiling):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline]:
        for answer in super().get_capability(graph, kernels):
            yield Claim([*answer.nodes, answer.nodes[0]], answer.fused) if isinstance(answer, Claim) else answer


@mutant("graph.claims_are_sound")
def claims_a_node_twice() -> Subject:
    """Names the first node of a region again at its end."""
    return subject(_Twice, HOST)


class _Overlapping(Compiling):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline]:
        for answer in super().get_capability(graph, kernels):
            yield answer
            if isinstance(answer, Claim) and len(answer.nodes) > 1:
                yield Claim(answer.nodes[-1:], answer.fused)


@mutant("graph.claims_are_sound")
def claims_overlapping_regions() -> Subject:
    """Claims the last node of a region as a region of its own too."""
    return subject(_Overlapping, HOST)


class _Ringed(Compiling):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline]:
        ring = next(_rings(graph), ())
        yield from (Claim(pair, fused="pair") for pair in ring)
        taken = {node.name for pair in ring for node in pair}
        yield from (Claim([node], fused="one") for node in graph.nodes if node.name not in taken)


def _rings(graph: GraphView) -> Iterator[tuple[list[NodeView], list[NodeView]]]:
    """Two pairs of nodes, none of a pair behind the other, of which each pair reads a result of the other one."""
    behind = {node.name: _behind(node) for node in graph.nodes}
    pairs = [
        [one, two]
        for two in graph.nodes
        for one in graph.nodes
        if one is not two and one.name not in behind[two.name] and two.name not in behind[one.name]
    ]
    for first, second in itertools.product(pairs, pairs):
        if second[0].name in behind[first[0].name] and first[1].name in behind[second[1].name]:
            yield first, second


def _behind(node: NodeView) -> set[str]:
    """Names of the nodes to which a path leads from this one."""
    found: set[str] = set()
    ahead = [node]
    while ahead:
        for value in ahead.pop().outputs:
            fresh = [reader for reader in value.consumers if reader.name not in found] if value is not None else []
            found.update(reader.name for reader in fresh)
            ahead += fresh
    return found


@mutant("graph.claims_are_sound")
def claims_regions_in_a_ring() -> Subject:
    """Claims two regions, each convex by itself, of which each needs a result of the other."""
    return subject(_Ringed, HOST)


class _Forgetful(ReferenceProvider):
    """Remembers the bodies that it was asked about."""

    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self._known: list[GraphView] = []

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        again = graph.parent is not None and any(graph is known for known in self._known)
        self._known.append(graph)
        for answer in super().get_capability(graph, kernels):
            yield Decline(answer.nodes[0], "seen before") if again and isinstance(answer, Claim) else answer


@mutant("graph.capability_is_pure")
def takes_bodies_once() -> Subject:
    """Takes nodes of a nested graph when it is first asked about it."""
    return subject(_Forgetful)
