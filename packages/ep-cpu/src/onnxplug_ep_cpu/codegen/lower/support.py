"""What several families ask of a node, most of it before they take it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import NARROW, element_of

FLOAT32 = frozenset({"float32"})
FLOATS = FLOAT32 | frozenset(NARROW)
"""Computed in float32: 16 bits are what lies outside of regions."""
INTEGERS = frozenset({"int32", "int64"})
NUMBERS = FLOATS | INTEGERS | {"float64"}
REALS = NUMBERS - INTEGERS
"""Floats, and what is computed in float64: arithmetic, roots, products and the functions of ``approx64``."""
ANY = NUMBERS | {"bool"}


def attributes(node: NodeView, **defaults: Any) -> Any:
    """The node's attributes with defaults, by name."""
    return {**defaults, **node.attributes}


def typed(value: ValueView | None, allowed: Collection[str] = FLOATS) -> str | None:
    """Why the value is not a tensor of an allowed element type and known rank, or None."""
    if value is None:
        return None
    if value.dtype is None or element_of(value.dtype) not in allowed:
        return f"no code is generated for {value.dtype or 'a value that is no tensor'}"
    return None if value.shape is not None else f"the rank of '{value.name}' is not known"


def ranked(value: ValueView | None, allowed: Collection[str], rank: int) -> str | None:
    """Why the value is not a tensor of an allowed element type and of ``rank`` dimensions, or None; None for no value."""
    if value is None:
        return None
    if (reason := typed(value, allowed)) is not None:
        return reason
    return None if value.shape is not None and len(value.shape) == rank else f"'{value.name}' has not {rank} dimensions"


def floats(node: NodeView) -> str | None:
    """Every operand is a tensor of floats."""
    return of(FLOATS)(node)


def of(allowed: Collection[str]) -> Callable[[NodeView], str | None]:
    """Every operand is a tensor of an allowed element type."""

    def supports(node: NodeView) -> str | None:
        return next((reason for v in (*node.inputs, *node.outputs) if (reason := typed(v, allowed))), None)

    return supports


def since(version: int, otherwise: Callable[[NodeView], str | None]) -> Callable[[NodeView], str | None]:
    """Not the operator's older forms, which broadcast by attributes; then as ``otherwise`` says."""

    def supports(node: NodeView) -> str | None:
        return "only its newer versions are generated" if node.since_version < version else otherwise(node)

    return supports


def width_of(value: ValueView | None) -> int | None:
    """Size of the last dimension; None where it is not known."""
    size = value.shape[-1] if value is not None and value.shape else None
    return size if isinstance(size, int) else None


def require(reason: str | None) -> None:
    """Unsupported where there is a reason: what a node is asked again when the sizes are known."""
    if reason is not None:
        raise Unsupported(reason)


def rank(value: ValueView | None) -> int:
    """Number of dimensions; -1 when it is not known."""
    return -1 if value is None or value.shape is None else len(value.shape)


def axis_of(axis: int, dims: int) -> int:
    """``axis`` counted from the front. Unsupported for one that a tensor of ``dims`` dimensions does not have: the kernel refuses it."""
    if not -dims <= axis < dims:
        raise Unsupported(f"axis {axis} is not in [{-dims}, {dims - 1}]")
    return axis % dims


def single_output(node: NodeView) -> str | None:
    """Only the first output is used."""
    return "a second output is wanted" if any(v is not None for v in node.outputs[1:]) else None


def number(value: ValueView | None) -> float | None:
    """The one element of a constant, or None."""
    if value is None or value.constant is None or value.constant.size != 1:
        return None
    return float(value.constant.reshape(-1)[0])
