"""Which function lowers which operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.lower import families

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.lower.context import Lowering

Lower = Callable[["Lowering", NodeView], None]
Supports = Callable[[NodeView], str | None]
_lowerings: dict[tuple[str, str], tuple[Lower, Supports]] = {}


def lowering(*op_types: str, supports: Supports, domain: str = "") -> Callable[[Lower], Lower]:
    """Enter the decorated function as the lowering of operators. ``supports(node)`` says from types, attributes and constants
    alone why a node cannot be lowered, or None."""

    def enter(function: Lower) -> Lower:
        for op_type in op_types:
            _lowerings[domain, op_type] = function, supports
        return function

    return enter


Accepts = Callable[[NodeView], bool]
_accepted: dict[tuple[str, str], list[Accepts]] = {}


def accept(*op_types: str, domain: str = "") -> Callable[[Accepts], Accepts]:
    """Enter what decides about nodes that a pattern lowers although their own lowering does not support them."""

    def enter(function: Accepts) -> Accepts:
        for op_type in op_types:
            _accepted.setdefault((domain, op_type), []).append(function)
        return function

    return enter


def accepted(node: NodeView) -> bool:
    """Whether a pattern vouches for the node."""
    return any(accepts(node) for accepts in _accepted.get((node.domain, node.op_type), ()))


def lowerings(nodes: Iterable[NodeView]) -> Mapping[tuple[str, str], tuple[Lower, Supports]]:
    """(domain, operator) -> lowering and what it supports, those of the nodes' operators among them; enters their patterns."""
    families({node.op_type for node in nodes})
    return _lowerings


def is_lowered(node: NodeView) -> bool:
    """Whether the node's lowering takes it, or a pattern vouches for it; ``lowerings`` has entered them."""
    found = _lowerings.get((node.domain, node.op_type))
    return found is not None and (found[1](node) is None or accepted(node))


def lower(b: Lowering, node: NodeView) -> None:
    """Lower one node by itself."""
    _lowerings[node.domain, node.op_type][0](b, node)
