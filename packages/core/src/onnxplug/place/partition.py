"""Ask the providers: claims in priority order, convexity, function inlining, until every node of a graph has an
owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxplug.contract.claims import Claim, Decline, Inline
from onnxplug.contract.errors import Fail
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.contract.graph import NodeView
from onnxplug.contract.kernels import KernelDef, Mismatch
from onnxplug.graph.inline import function_body, inline
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.schemas import CONTROL_FLOW
from onnxplug.place.units import Reasons, SessionProvider

_MAX_ROUNDS = 200  # each round inlines one level of functions; more is a recursion that inline() did not see


@dataclass(eq=False, slots=True)
class Group:
    """Nodes that one provider owns as one unit: a single node with a kernel, or a fused region. ``provider`` None: run
    by the core."""

    nodes: list[Node]
    provider: SessionProvider | None
    definition: KernelDef | None = None
    fused: str | None = None


Barred = set[tuple[str, str]]
"""(provider, node name) pairs that a failed compilation or a caller ruled out."""


@dataclass(slots=True)
class Partitioner:
    """Places graphs of one model. ``tidy`` runs the optimizer over a graph after functions were inlined into it."""

    providers: Sequence[SessionProvider]
    folder: Path
    tidy: Callable[[Graph], None]
    reasons: Reasons = field(default_factory=Reasons)
    barred: Barred = field(default_factory=set)

    def partition(self, graph: Graph) -> list[Group]:
        """Owners of every node of this graph (not of its nested graphs), in execution order. NotImplemented when a node
        has none."""
        for _ in range(_MAX_ROUNDS):
            groups, wanted_inline = self._offer(graph)
            unclaimed = [n for n in graph.nodes if n not in groups and not _is_control(n)]
            opened = self._inline(graph, [n for n in wanted_inline if n not in groups] or unclaimed)
            if not opened:
                if unclaimed:
                    raise self._not_implemented(unclaimed[0])
                for node in graph.nodes:
                    if node not in groups:
                        groups[node] = Group([node], None)
                return in_order(graph, groups)
            self.tidy(graph)
        raise Fail(f"Functions of graph '{graph.name}' nest deeper than {_MAX_ROUNDS} levels")

    def _offer(self, graph: Graph) -> tuple[dict[Node, Group], list[Node]]:
        groups: dict[Node, Group] = {}
        to_inline: list[Node] = []
        members = set(graph.nodes)

        def own(node: NodeView) -> Node:
            if not isinstance(node, Node) or node not in members:
                raise Fail(
                    f"{provider.name}: get_capability named a node that is not in graph '{graph.name}': {node!r}"
                )
            return node

        for provider in self.providers:
            lookup = _Lookup(provider)
            answers = list(provider.call("get_capability", graph=graph, kernels=lookup) or ())
            for answer in answers:
                if isinstance(answer, Decline):
                    self.reasons.add(own(answer.node), provider.name, answer.reason)
                elif isinstance(answer, Inline):
                    node = own(answer.node)
                    if node not in groups:
                        to_inline.append(node)
                elif isinstance(answer, Claim):
                    self._take(
                        graph, provider, answer.fused, list(dict.fromkeys(map(own, answer.nodes))), lookup, groups
                    )
                else:
                    raise Fail(
                        f"{provider.name}: get_capability yielded {answer!r}; it must yield Claim, Decline or Inline"
                    )
            self._note(graph, provider, lookup, groups)
            if to_inline:
                return groups, to_inline
        return groups, to_inline

    def _take(
        self,
        graph: Graph,
        provider: SessionProvider,
        fused: str | None,
        nodes: list[Node],
        lookup: _Lookup,
        groups: dict[Node, Group],
    ) -> None:
        barred = [n for n in nodes if (provider.name, n.name) in self.barred]
        owned = [n for n in nodes if n in groups]
        if barred or owned:
            for node in nodes:
                if node not in groups and not barred:
                    self.reasons.add(
                        node, provider.name, f"claim dropped: '{owned[0].name}' belongs to {_owner(groups[owned[0]])}"
                    )
            return
        if fused is not None:
            if not provider.compiles:
                raise Fail(f"{provider.name} claims the fused region '{fused}' but implements no compile()")
            if not is_convex(graph, nodes, groups):
                for node in nodes:
                    self.reasons.add(node, provider.name, f"region '{fused}' is not convex")
                return
            group = Group(nodes, provider, fused=fused)
            groups.update((n, group) for n in nodes)
            return
        for node in nodes:
            found = lookup.kernel_for(node)
            if isinstance(found, Mismatch):
                raise Fail(
                    f"{provider.name} claims node '{node.name}' ({node.label}) for which it has no kernel: {found.reason}"
                )
            groups[node] = Group([node], provider, found)

    def _note(self, graph: Graph, provider: SessionProvider, lookup: _Lookup, groups: dict[Node, Group]) -> None:
        """Give every node this provider could have had and did not take a reason."""
        for node in graph.nodes:
            group = groups.get(node)
            if group is not None:
                if group.provider is not provider:
                    self.reasons.add(node, provider.name, f"taken by {_owner(group)}, which has priority")
            elif (provider.name, node.name) in self.barred:
                self.reasons.add(node, provider.name, "its compilation failed")
            elif not _is_control(node):
                found = lookup.kernel_for(node)
                self.reasons.add(
                    node,
                    provider.name,
                    found.reason if isinstance(found, Mismatch) else "not claimed by get_capability",
                )

    def _inline(self, graph: Graph, nodes: Iterable[Node]) -> bool:
        opened = False
        for node in nodes:
            body = function_body(graph, node)
            if body is not None:
                self.reasons.inlined.append((node.name, node.label))
                inline(graph, node, body, self.folder)
                opened = True
        return opened

    def _not_implemented(self, node: Node) -> Exception:
        reasons = "; ".join(f"{p}: {t}" for p, t in self.reasons.of(node).items())
        error: Exception = OrtNotImplemented(
            f"Could not find an implementation for {node.label}({node.since_version}) node with name '{node.name}' ({reasons})"
        )
        return error


class _Lookup:
    """``KernelLookup`` over one registry, remembering answers."""

    __slots__ = ("_found", "_registry")

    def __init__(self, provider: SessionProvider) -> None:
        self._registry = provider.registry
        self._found: dict[int, KernelDef | Mismatch] = {}

    def kernel_for(self, node: NodeView) -> KernelDef | Mismatch:
        found = self._found.get(id(node))
        if found is None:
            found = self._found[id(node)] = self._registry.kernel_for(node)
        return found


def _is_control(node: Node) -> bool:
    return node.domain == "" and node.op_type in CONTROL_FLOW


def _owner(group: Group) -> str:
    return group.provider.name if group.provider else "the core"


def is_convex(graph: Graph, nodes: Sequence[Node], groups: dict[Node, Group]) -> bool:
    """Whether no path leaves ``nodes`` and comes back, with fused groups already accepted counted as single steps."""
    inside = set(nodes)
    stack = [c for n in nodes for c in _successors(n) if c not in inside]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in inside:
            return False
        if node in seen:
            continue
        group = groups.get(node)
        members = group.nodes if group is not None else [node]
        seen.update(members)
        stack.extend(c for m in members for c in _successors(m))
    return True


def _successors(node: Node) -> Iterable[Node]:
    return (c for v in node.outputs if v is not None for c in v.consumers)


def in_order(graph: Graph, groups: dict[Node, Group]) -> list[Group]:
    """The groups in a topological order, as near to the order of their first nodes as dependencies allow."""
    unique = list(dict.fromkeys(groups[n] for n in graph.nodes))
    if all(len(g.nodes) == 1 for g in unique):
        return unique
    order: list[Group] = []
    done: set[int] = set()
    for root in unique:
        stack = [(root, False)]
        while stack:
            group, leaving = stack.pop()
            if id(group) in done:
                continue
            if leaving:
                done.add(id(group))
                order.append(group)
                continue
            stack.append((group, True))
            producers = {
                id(groups[v.producer]): groups[v.producer] for n in group.nodes for v in n.reads if v.producer in groups
            }
            stack.extend((p, False) for p in producers.values() if p is not group and id(p) not in done)
    return order
