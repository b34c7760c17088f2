"""Which nodes' weights the device has room for: those of a graph's first nodes, so that a model too large for one device is cut once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from onnxplug.contract import NodeView, ValueView

SHARE = 0.75
"""The part of its memory that weights may take: the rest is for what a run computes."""


def without_room(nodes: Sequence[NodeView], runs: Callable[[NodeView], bool], memory: int) -> Mapping[int, str]:
    """Reasons by the id of a node: of the first that the device ``runs``, in topological order, whose weights and those before it take
    more than their share of ``memory`` bytes, and of all behind it."""
    most = int(SHARE * memory)
    if _nbytes(_weights(nodes)) <= most:
        return {}  # as nearly always
    left: dict[int, str] = {}
    held: dict[int, ValueView] = {}
    taken, reason = 0, ""
    for node in filter(runs, nodes):
        fresh = {key: value for key, value in _weights([node]).items() if key not in held}
        held |= fresh
        taken += _nbytes(fresh)
        if taken > most and not reason:
            reason = f"weights may take {most} of {memory} bytes, and up to '{node.name}' there are {taken}"
        if reason:
            left[id(node)] = reason
    return left


def _weights(nodes: Iterable[NodeView]) -> dict[int, ValueView]:
    """Constants that nodes read, each once."""
    return {id(v): v for node in nodes for v in node.inputs if v is not None and v.is_constant}


def _nbytes(weights: Mapping[int, ValueView]) -> int:
    return sum(
        math.prod(dim for dim in v.shape if isinstance(dim, int)) * v.dtype.itemsize
        for v in weights.values()
        if v.shape is not None and v.dtype is not None
    )
