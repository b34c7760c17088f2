"""Ask the providers: claims in priority order, convexity, function inlining, until every node of a graph has an
owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import cast

from onnxplug.contract.claims import Claim, Decline, Inline
from onnxplug.contract.errors import STATUS_ERRORS, Fail
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.contract.graph import NodeView
from onnxplug.contract.kernels import KernelDef, Mismatch
from onnxplug.contract.records import record
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.schemas import EP_CONTEXT, is_control
from onnxplug.place.units import Reasons, SessionProvider

_MAX_ROUNDS = 200  # each round inlines one level of functions; more is a recursion that inline() did not see


@record(eq=False, slots=True)
class Group:
    """Nodes that one provider owns as one unit: a single node with a kernel, or a fused region. ``provider`` None: run
    by the core."""

    nodes: list[Node]
    provider: SessionProvider | None
    definition: KernelDef | None = None
    fused: str | None = None


Barred = dict[tuple[str, str], str]
"""(provider, node name) pairs that a failed compilation ruled out, with its error."""


@record(slots=True)
class Partitioner:
    """Places graphs of one model. ``tidy`` runs the optimizer over a graph after functions were inlined into it."""

    providers: Sequence[SessionProvider]
    tidy: Callable[[Graph], None]
    reasons: Reasons = field(default_factory=Reasons)
    barred: Barred = field(default_factory=dict)

    def partition(self, graph: Graph) -> list[Group]:
        """Owners of every node of this graph (not of its nested graphs), in execution order. NotImplemented when a node
        has none."""
        hopeless: set[Node] = set()
        for _ in range(_MAX_ROUNDS):
            groups, wanted_inline = self._offer(graph, hopeless)
            unclaimed = [n for n in graph.nodes if n not in groups and not is_control(n)]
            opened = _expanded(graph, wanted_inline or unclaimed)
            self.reasons.inlined += [(n.name, n.label) for n in opened]
            if not opened and wanted_inline:
                hopeless.update(wanted_inline)
                continue
            if not opened:
                if unclaimed:
                    raise self._not_implemented(unclaimed[0])
                for node in graph.nodes:
                    if node not in groups:
                        groups[node] = Group([node], None)
                return in_order(graph, groups)
            self.tidy(graph)
        raise Fail(f"Functions of graph '{graph.name}' nest deeper than {_MAX_ROUNDS} levels")

    def _offer(self, graph: Graph, hopeless: set[Node]) -> tuple[dict[Node, Group], list[Node]]:
        """Owners of nodes, and the nodes that a provider wants inlined first (``hopeless`` ones cannot be)."""
        groups: dict[Node, Group] = {}
        to_inline: list[Node] = []
        self.reasons.forget(graph.nodes)
        place = {node: number for number, node in enumerate(graph.nodes)}
        for node in filter(is_context, graph.nodes):
            owner = next((p for p in self.providers if p.source == context_source(node)), None)
            if owner is not None:
                groups[node] = Group([node], owner, fused=node.name)
        for provider in self.providers:
            lookup = _Lookup(provider, {id(node): _owner(group) for node, group in groups.items()})
            for answer in _answers(provider, graph, lookup):
                if isinstance(answer, Claim):
                    nodes = sorted(set(cast("Sequence[Node]", answer.nodes)), key=place.__getitem__)
                    self._take(graph, provider, answer.fused, nodes, lookup, groups)
                    continue
                node = cast("Node", answer.node)
                if isinstance(answer, Decline):
                    self.reasons.add(node, provider.name, answer.reason)
                elif node in hopeless:
                    self.reasons.add(node, provider.name, "asked to see its body, but it has none")
                elif node not in groups:
                    to_inline.append(node)
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
        why = next((text for n in nodes if (text := self._obstacle(provider, n, groups, fused))), None)
        if why is not None:
            for node in nodes:
                if self._obstacle(provider, node, groups, fused) is None:
                    self.reasons.add(node, provider.name, f"claim dropped: {why}")
            return
        if fused is not None:
            if not provider.compiles:
                raise Fail(f"{provider.name} claims the fused region '{fused}' but implements no compile()")
            if not is_convex(nodes, groups):
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

    def _obstacle(
        self, provider: SessionProvider, node: Node, groups: dict[Node, Group], fused: str | None
    ) -> str | None:
        """Why a provider cannot have a node. What it could not compile it may still run by a kernel."""
        if node in groups:
            return f"'{node.name}' belongs to {_owner(groups[node])}"
        barred = None if fused is None else self.barred.get((provider.name, node.name))
        return None if barred is None else f"compilation of '{node.name}' failed: {barred}"

    def _note(self, graph: Graph, provider: SessionProvider, lookup: _Lookup, groups: dict[Node, Group]) -> None:
        """Give every node this provider could have had and did not take a reason."""
        for node in graph.nodes:
            group = groups.get(node)
            if group is not None:
                if group.provider is not provider:
                    self.reasons.add(node, provider.name, f"taken by {_owner(group)}, which has priority")
            elif (provider.name, node.name) in self.barred:
                self.reasons.add(
                    node, provider.name, f"its compilation failed: {self.barred[provider.name, node.name]}"
                )
            elif not is_control(node):
                found = lookup.kernel_for(node)
                self.reasons.add(
                    node,
                    provider.name,
                    found.reason if isinstance(found, Mismatch) else "not claimed by get_capability",
                )

    def _not_implemented(self, node: Node) -> Exception:
        if is_context(node):
            return OrtNotImplemented(
                f"EPContext node generated by '{context_source(node)}' is not compatible with any execution provider added to "
                f"the session. EPContext node name: '{node.name}'. Available session execution providers: "
                f"[{', '.join(p.name for p in self.providers)}]."
            )
        reasons = "; ".join(f"{p}: {t}" for p, t in self.reasons.of(node).items())
        named = (node.domain, node.op_type)
        if node.schema is None and not any((k.domain, k.op_type) == named for p in self.providers for k in p.registry):
            return Fail(f"Fatal error: {node.domain}:{node.op_type}(-1) is not a registered function/op ({reasons})")
        return OrtNotImplemented(
            f"Could not find an implementation for {node.label}({node.since_version}) node with name '{node.name}' ({reasons})"
        )


def is_context(node: Node) -> bool:
    """Whether the node is an EPContext: something its provider compiled in an earlier session."""
    return (node.domain, node.op_type) == EP_CONTEXT


def context_source(node: Node) -> str:
    """The provider that an EPContext is of."""
    return str(node.attributes.get("source", ""))


def _answers(provider: SessionProvider, graph: Graph, lookup: _Lookup) -> list[Claim | Decline | Inline]:
    """What a provider says to a graph; Fail when that is not what the contract asks for."""
    members = set(graph.nodes)
    given = provider.call("get_capability", graph=graph, kernels=lookup)
    answers: list[Claim | Decline | Inline] = []
    try:
        for answer in () if given is None else given:
            if isinstance(answer, Claim):
                answer = Claim(list(answer.nodes), answer.fused)
            elif not isinstance(answer, Decline | Inline):
                raise TypeError(f"it gave {answer!r}")
            for node in answer.nodes if isinstance(answer, Claim) else [answer.node]:
                if not isinstance(node, Node) or node not in members:
                    raise ValueError(f"it named a node that is not in graph '{graph.name}': {node!r}")
            answers.append(answer)
    except STATUS_ERRORS:
        raise
    except Exception as error:
        raise Fail(
            f"{provider.name}: get_capability must give Claims, Declines and Inlines of the graph's nodes: {error}"
        ) from error
    return answers


class _Lookup:
    """``KernelLookup`` over one registry, remembering answers; ``owners`` are names by the id of the node."""

    __slots__ = ("_found", "_owners", "_registry")

    def __init__(self, provider: SessionProvider, owners: Mapping[int, str]) -> None:
        self._registry, self._owners = provider.registry, owners
        self._found: dict[int, KernelDef | Mismatch] = {}

    def kernel_for(self, node: NodeView) -> KernelDef | Mismatch:
        found = self._found.get(id(node))
        if found is None:
            found = self._found[id(node)] = self._registry.kernel_for(node)
        return found

    def owner(self, node: NodeView) -> str | None:
        return self._owners.get(id(node))


def _expanded(graph: Graph, nodes: list[Node]) -> list[Node]:
    if not nodes:
        return []
    from onnxplug.graph.expand import expand  # what reads schemas is not imported where every node is claimed

    opened = expand(graph, nodes)
    if opened:
        graph.forget()
    return opened


def _owner(group: Group) -> str:
    return group.provider.name if group.provider else "the core"


def is_convex(nodes: Sequence[Node], groups: dict[Node, Group]) -> bool:
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
