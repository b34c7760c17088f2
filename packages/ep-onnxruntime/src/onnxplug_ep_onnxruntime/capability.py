"""What a provider of onnxruntime takes: what it says when it is given the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxplug.contract import (
    Claim,
    Decline,
    GraphView,
    KernelDef,
    KernelLookup,
    NodeView,
    SequenceType,
    TensorType,
    ValueType,
    ValueView,
    convex_groups,
)
from onnxplug.contract.digest import blake2b
from onnxplug.contract.model import boundary, onnx_model
from onnxplug_ep_onnxruntime import library
from onnxplug_ep_onnxruntime.deviations import deviation
from onnxplug_ep_onnxruntime.errors import text_of
from onnxplug_ep_onnxruntime.sessions import Maker

_UNKNOWN = frozenset({"complex64", "complex128", "float6e2m3", "float6e3m2"})
"""Elements that onnxruntime has no values of."""
_VERSIONS = {"": 21, "ai.onnx.ml": 3}
"""What the oldest onnxruntime that is taken knows: a model imports no later version unless a node is of one."""
_ROUNDS = 100
"""How often a graph is divided anew before what is not settled is left to others."""

Refusals = dict[str, str]
"""Names of nodes that are not taken, each with the reason."""


@dataclass
class Trial:
    """Nodes that were given to the provider: the session, where it takes all of them."""

    session: Any = None
    refused: Refusals = field(default_factory=dict)


class Capability:
    """Asks the provider by making sessions, the largest groups first. What was answered is kept by the content of the nodes, so that a
    graph costs nothing when it is offered again, and the session of a group that is claimed becomes the region's."""

    def __init__(self, maker: Maker, short: str) -> None:
        self._maker, self._short = maker, short
        self._trials: dict[bytes, Trial] = {}

    def answers(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline]:
        """A claim or a reason for each node."""
        offered = {node.name: node for node in graph.nodes if kernels.owner(node) is None}
        refused = {name: why for name, node in offered.items() if (why := self._refusal(node, kernels)) is not None}
        groups: list[list[NodeView]] = []

        def free(node: NodeView) -> bool:
            return node.name in offered and node.name not in refused

        for _ in range(_ROUNDS):
            groups = convex_groups(graph, free)
            found: Refusals = {}
            for group in groups:
                found.update(self._trial(graph, group).refused)
            if not found:
                break
            refused.update(found)
        else:
            reason = f"{self._maker.ep} takes ever other nodes of those around it"
            refused.update({node.name: reason for group in groups for node in group})
            groups = []
        for group in groups:
            yield Claim(group, fused=self._short)
        for node in graph.nodes:
            if node.name in refused:
                yield Decline(node, refused[node.name])

    def session(self, graph: GraphView) -> tuple[Any, Sequence[str]]:
        """The session of a region, which is that of the group as which it was offered, else a new one; and the names of the constants
        that it has copied. Raises what onnxruntime does."""
        model, constants = _model(graph, graph.nodes, graph.inputs, graph.outputs)
        trial = self._trials.pop(_key(model, constants), None)
        found = trial.session if trial is not None else None
        return found or self._maker.session(model, constants), list(constants)

    def forget(self) -> None:
        """Let go of sessions that became no region's."""
        self._trials.clear()

    def _refusal(self, node: NodeView, kernels: KernelLookup) -> str | None:
        """Why a node is not offered to the provider at all."""
        known = library.operators().get((node.domain, node.op_type), frozenset())
        if node.since_version not in known:
            return f"onnxruntime does not know {node.op_type}" + (f" of version {node.since_version}" if known else "")
        values = [v for v in (*node.inputs, *node.captures, *node.outputs) if v is not None]
        if (reason := next((r for v in values if (r := self._unfit(v))), None)) is not None:
            return reason
        if self._maker.is_cpu:
            if (reason := deviation(node, self._maker.exact)) is not None:
                return reason
            found = kernels.kernel_for(node)
            if not isinstance(found, KernelDef) and not node.subgraphs:
                return found.reason
        inner = (self._refusal(n, kernels) for body in node.subgraphs.values() for n in body.nodes)
        return next((reason for reason in inner if reason is not None), None)

    def _unfit(self, value: ValueView) -> str | None:
        """Why onnxruntime cannot be given, or give, a value."""
        type_ = value.type
        if type_ is None:
            return f"the type of {value.name} is not known"
        is_tensor = isinstance(type_, TensorType) and type_.element not in _UNKNOWN
        if not (is_tensor or _is_list(type_)):
            return f"{type_} cannot be handed to onnxruntime"
        is_numbers = isinstance(type_, TensorType) and type_.element != "string"
        return None if is_numbers or self._maker.is_cpu else f"{type_} is for onnxruntime's CPU provider only"

    def _trial(self, graph: GraphView, nodes: Sequence[NodeView]) -> Trial:
        inputs, outputs = boundary(graph, nodes)
        if (apart := _apart(nodes, inputs, outputs)) is not None:
            return Trial(refused=apart)
        model, constants = _model(graph, nodes, inputs, outputs)
        key = _key(model, constants)
        if key not in self._trials:
            self._trials[key] = self._tried(graph, nodes, model, constants)
        return self._trials[key]

    def _tried(
        self, graph: GraphView, nodes: Sequence[NodeView], model: bytes, constants: Mapping[str, ValueView]
    ) -> Trial:
        try:
            session = self._maker.session(model, constants)
        except Exception as error:
            return Trial(refused=self._blamed(graph, nodes, error))
        left = self._left(session, nodes)
        if (
            left is not None and not left
        ):  # named by none of the nodes: they were fused or folded before they were assigned
            left = self._left(self._maker.session(model, constants, exactly=True), nodes) or {n.name for n in nodes}
        if left is None:
            return Trial(session)
        if len(left) == len(nodes) > 1:
            left = self._alone(graph, nodes) or left
        return Trial(refused=dict.fromkeys(left, f"{self._maker.ep} leaves it to onnxruntime's CPU provider"))

    def _left(self, session: Any, nodes: Sequence[NodeView]) -> set[str] | None:
        """The nodes that the provider left to onnxruntime's CPU provider, as far as their names are still theirs; None where it took
        everything, in nested graphs too. ``session.disable_cpu_ep_fallback`` does not look into these, and tells no names."""
        if self._maker.is_cpu:
            return None
        others = [
            n.name for part in session.get_provider_graph_assignment_info() if part.ep_name != self._maker.ep
            for n in part.get_nodes()
        ]  # fmt: skip
        if not others:
            return None
        owners = {inner: node.name for node in nodes for inner in _names(node)}
        return {owners[name] for name in others if name in owners}

    def _alone(self, graph: GraphView, nodes: Sequence[NodeView]) -> set[str]:
        """Of nodes that the provider refuses together, perhaps for the sake of one, those that it refuses alone."""
        answers: dict[bytes, bool] = {}
        found = set()
        for node in nodes:
            like = _likeness(node)
            if like not in answers:
                answers[like] = bool(self._trial(graph, [node]).refused)
            if answers[like]:
                found.add(node.name)
        return found

    def _blamed(self, graph: GraphView, nodes: Sequence[NodeView], error: Exception) -> Refusals:
        """The nodes that an error is about: those it names, with others that are alike; else it is sought by halves."""
        reason = text_of(error)
        named = [n for n in nodes if _is_named(n.name, reason)]
        if named or len(nodes) == 1:
            alike = {_likeness(n) for n in named or nodes}
            return {n.name: reason for n in nodes if _likeness(n) in alike}
        half = len(nodes) // 2
        halves = nodes[:half], nodes[half:]
        found: Refusals = {}
        for part in halves:
            found |= self._trial(graph, part).refused
        return found or {n.name: f"not together with those before it: {reason}" for n in halves[1]}


def _model(
    graph: GraphView, nodes: Sequence[NodeView], inputs: Sequence[ValueView], outputs: Sequence[ValueView]
) -> tuple[bytes, Mapping[str, ValueView]]:
    """The nodes as a model; where nobody reads a result, one is an output all the same, since a model has some."""
    last = [v for v in nodes[-1].outputs if v is not None][:1]
    model, constants = onnx_model(graph, nodes, inputs, outputs or last, _VERSIONS)
    model.graph.name = "region"
    return model.SerializeToString(deterministic=True), constants


def _apart(nodes: Sequence[NodeView], inputs: Sequence[ValueView], outputs: Sequence[ValueView]) -> Refusals | None:
    """The nodes that are not to be with the others: onnxruntime takes strings as Python's objects only, and then gives nothing as bits."""
    strings = {v.name for v in inputs if v.type is not None and "string" in str(v.type)}
    bits = {str(v.type) for v in (*inputs, *outputs) if isinstance(v.type, TensorType) and v.type.dtype.isbuiltin != 1}
    if not strings or not bits:
        return None
    reason = f"onnxruntime cannot be handed strings beside {sorted(bits)[0]}"
    return {n.name: reason for n in nodes if any(v is not None and v.name in strings for v in (*n.inputs, *n.captures))}


def _key(model: bytes, constants: Iterable[str]) -> bytes:
    """What tells the content of nodes within one session, where a constant's name does not change its value."""
    return blake2b(model + repr(list(constants)).encode(), digest_size=16).digest()


def _likeness(node: NodeView) -> bytes:
    """The same for nodes of one operator, with the same attributes, on values of the same types."""
    proto = node.proto()
    proto.ClearField("name"), proto.ClearField("input"), proto.ClearField("output")
    types = [
        (str(v.type), v.shape and len(v.shape), v.is_constant) if v is not None else None
        for v in (*node.inputs, *node.outputs)
    ]
    content: bytes = proto.SerializeToString(deterministic=True)
    return content + repr((node.since_version, types)).encode()


def _names(node: NodeView) -> Iterator[str]:
    yield node.name
    for body in node.subgraphs.values():
        for inner in body.nodes:
            yield from _names(inner)


def _is_named(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w/.-])", text) is not None


def _is_list(type_: ValueType) -> bool:
    """Whether values are sequences of what NumPy has, or of dictionaries."""
    return isinstance(type_, SequenceType) and "complex" not in str(type_) and "optional" not in str(type_)
