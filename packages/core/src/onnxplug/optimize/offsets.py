"""Integers that are another one and a number more, and lengths likewise: what tells that a place is within a list."""

from __future__ import annotations

from onnxplug.contract.types import TensorType
from onnxplug.graph.ir import Node
from onnxplug.graph.value import Value

Offset = tuple[Value | None, int]
"""A value, None for nothing, and what is added to it."""
_INTEGERS = frozenset({"int64", "int32"})
_SAME = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that hand an only element on."""
_CASTS = frozenset({"Cast", "CastLike"})


def number(value: Value | None) -> int | None:
    """The only element of a constant of integers."""
    if value is None or not value.is_constant or value.dtype is None or value.dtype.name not in _INTEGERS:
        return None
    array = value.constant
    return int(array.item()) if array is not None and array.size == 1 else None


def offset(value: Value) -> Offset:
    """What a value of one integer is, as far back as it is one plus a number."""
    more = 0
    while (known := number(value)) is None:
        node = _own(value)
        if node is None:
            return value, more
        if node.op_type in _SAME or (node.op_type in _CASTS and _is_integer(node.inputs[0])):
            (before, *_), added = node.inputs, 0
        elif node.op_type in ("Add", "Sub") and (found := _added(node)) is not None:
            before, added = found
        else:
            return value, more
        if before is None:
            return value, more
        value, more = before, more + added
    return None, known + more


def _added(node: Node) -> tuple[Value | None, int] | None:
    """The operand of a sum or difference to which a number is added, and the number."""
    one, other = node.inputs
    if (known := number(other)) is not None:
        return one, known if node.op_type == "Add" else -known
    if node.op_type == "Add" and (known := number(one)) is not None:
        return other, known
    return None


def length(value: Value) -> Offset:
    """How many elements there are along the first axis at least: as many as another value has there, and a number more."""
    more = 0
    while True:
        shape = value.shape
        if shape and isinstance(shape[0], int):
            return None, shape[0] + more
        node = _own(value)
        if node is None:
            return value, more
        if node.op_type == "Concat" and node.attributes.get("axis") == 0:
            known = [v.shape[0] if v is not None and v.shape else None for v in node.inputs]
            open_ = [v for v, n in zip(node.inputs, known, strict=True) if v is not None and not isinstance(n, int)]
            if not open_:
                return value, more
            more += sum(n for n in known if isinstance(n, int))
            value = open_[0]  # the others have no fewer than none
        elif node.op_type == "Identity" and node.inputs[0] is not None:
            value = node.inputs[0]
        else:
            return value, more


def is_at_most(value: Value, more: int, most: Offset) -> bool:
    """Whether a value of one integer and ``more`` is never above ``most``, a length."""
    base, known = offset(value)
    node = None if base is None else _own(base)
    if node is not None and node.op_type == "Max":
        return all(v is not None and is_at_most(v, known + more, most) for v in node.inputs)
    if node is not None and node.op_type == "Min":
        return any(v is not None and is_at_most(v, known + more, most) for v in node.inputs)
    counted = None if node is None else _counted(node)
    if counted is not None:
        base, further = length(counted)
        known += further
    return (base is None or base is most[0]) and known + more <= most[1]


def is_there_in_trips(loop: Node | None, place: Value, source: Value) -> bool:
    """Whether ``place`` is the number of a Loop's trip, or so many more, and ``source`` has an element there in each."""
    if loop is None or loop.op_type != "Loop" or loop.domain or loop.inputs[0] is None:
        return False
    base, first = offset(place)
    return base is loop.subgraphs["body"].inputs[0] and first >= 0 and is_at_most(loop.inputs[0], first, length(source))


def _counted(node: Node) -> Value | None:
    """The value of whose first axis a node gives the length."""
    if node.op_type == "Size" and (x := node.inputs[0]) is not None and x.shape is not None and len(x.shape) == 1:
        return x
    if node.op_type == "Gather" and number(node.inputs[1]) == 0 and node.inputs[0] is not None:
        inner = _own(node.inputs[0])
        return None if inner is None else _first(inner)
    return _first(node) if node.op_type == "Shape" else None


def _first(node: Node) -> Value | None:
    """What a Shape is of, if it begins with the first axis; the only one, where the Shape itself is asked for one integer."""
    return node.inputs[0] if node.op_type == "Shape" and node.attributes.get("start", 0) == 0 else None


def _own(value: Value) -> Node | None:
    node = value.producer
    return node if node is not None and node.domain == "" else None


def _is_integer(value: Value | None) -> bool:
    return value is not None and isinstance(value.type, TensorType) and value.type.element in _INTEGERS
