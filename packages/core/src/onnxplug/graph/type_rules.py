"""What two types have in common, and what a type says of a part of its values or of many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from onnxplug.contract.types import Dim, OptionalType, SequenceType, Shape, TensorType, ValueType

D = TypeVar("D")


def merge(declared: ValueType | None, inferred: ValueType | None) -> ValueType | None:
    """What is known from both; where they contradict inference wins (as in onnxruntime, once it has changed anything of the graph)."""
    if inferred is None or declared is None:
        return inferred if declared is None else declared
    if (
        not isinstance(inferred, TensorType)
        or not isinstance(declared, TensorType)
        or inferred.element != declared.element
    ):
        return inferred
    if inferred.shape is None or declared.shape is None:
        return declared if inferred.shape is None else inferred
    if len(inferred.shape) != len(declared.shape):
        return inferred
    return TensorType(inferred.element, tuple(map(_merge_dim, declared.shape, inferred.shape)))


def _merge_dim(declared: Any, inferred: Any) -> Any:
    if isinstance(inferred, int):
        return inferred
    return declared if declared is not None else inferred


def contradict(declared: ValueType | None, inferred: ValueType | None) -> bool:
    """Whether two types have other ranks, or sizes."""
    if not isinstance(inferred, TensorType) or not isinstance(declared, TensorType):
        return False
    if inferred.shape is None or declared.shape is None:
        return False
    return len(inferred.shape) != len(declared.shape) or any(
        isinstance(a, int) and isinstance(b, int) and a != b
        for a, b in zip(declared.shape, inferred.shape, strict=True)
    )


def spelled(type_: ValueType | None) -> str:
    """A tensor type's shape as onnxruntime writes it: ``{2,-1}``."""
    shape = type_.shape if isinstance(type_, TensorType) and type_.shape is not None else ()
    return "{" + ",".join(str(dim) if isinstance(dim, int) else "-1" for dim in shape) + "}"


def has_more(merged: ValueType | None, inferred: ValueType | None) -> bool:
    """Whether a merged type has sizes that were not inferred."""
    if not isinstance(merged, TensorType) or merged.shape is None:
        return False
    known = inferred.shape if isinstance(inferred, TensorType) else None
    return any(isinstance(d, int) and (known is None or known[at] != d) for at, d in enumerate(merged.shape))


def common(a: ValueType | None, b: ValueType | None) -> ValueType | None:
    """The most specific type both fit."""
    if a is None or b is None or a == b:
        return a or b
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.element == b.element:
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return TensorType(a.element)
        return TensorType(a.element, tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)))
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(common(a.element, b.element) or a.element)
    if isinstance(a, OptionalType) and isinstance(b, OptionalType):
        return OptionalType(common(a.element, b.element) or a.element)
    return a


# ---- with less known, or of parts


def in_both(given: ValueType | None, made: ValueType | None) -> ValueType | None:
    """What a trip was given as far as it gives it back."""
    return common(given, made) if ranked(given) == ranked(made) else loosened(given)


def anonymous(type_: ValueType | None) -> ValueType | None:
    """The type without the names of its dimensions: in a body they may name others."""
    return (
        None if type_ is None else _within(type_, lambda shape: tuple(d if isinstance(d, int) else None for d in shape))
    )


def loosened(type_: ValueType | None) -> ValueType | None:
    """The type without its shape."""
    return None if type_ is None else _within(type_, lambda shape: None)


def ranked(type_: ValueType | None) -> ValueType | None:
    """The type without the sizes of its dimensions."""
    return None if type_ is None else _within(type_, lambda shape: (None,) * len(shape))


def _within(type_: ValueType, change: Callable[[Shape], Shape | None]) -> ValueType:
    """The type with the shape changed of the tensors that it is, or is a sequence or optional of."""
    if isinstance(type_, SequenceType):
        return SequenceType(_within(type_.element, change))
    if isinstance(type_, OptionalType):
        return OptionalType(_within(type_.element, change))
    if isinstance(type_, TensorType) and type_.shape is not None:
        return TensorType(type_.element, change(type_.shape))
    return type_


def sliced(type_: ValueType | None, axis: int) -> ValueType | None:
    """The type of what an axis has at one place."""
    if isinstance(type_, TensorType) and type_.shape is not None:
        return TensorType(type_.element, without_axis(type_.shape, axis))
    return type_


def stacked(type_: ValueType | None, length: Dim = None, axis: int = 0) -> ValueType | None:
    """The type of ``length`` values side by side along a new axis."""
    if isinstance(type_, TensorType) and type_.shape is not None:
        return TensorType(type_.element, with_axis(type_.shape, axis, length))
    return type_


def without_axis(shape: tuple[D, ...], axis: int) -> tuple[D, ...] | None:
    """The shape with one axis taken out; None where it has no such axis."""
    if not -len(shape) <= axis < len(shape):
        return None
    at = axis % len(shape)
    return (*shape[:at], *shape[at + 1 :])


def with_axis(shape: tuple[D, ...], axis: int, length: D) -> tuple[D, ...] | None:
    """The shape with an axis of ``length`` put in at ``axis`` of the result; None where that is no place in it."""
    if not -len(shape) - 1 <= axis <= len(shape):
        return None
    at = axis % (len(shape) + 1)
    return (*shape[:at], length, *shape[at:])


def length_of(type_: ValueType | None, axis: int = 0) -> Dim:
    """The size along an axis, where it is known."""
    shape = type_.shape if isinstance(type_, TensorType) else None
    return shape[axis] if shape and -len(shape) <= axis < len(shape) else None
