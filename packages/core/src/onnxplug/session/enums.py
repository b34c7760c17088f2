"""onnxruntime's enumerations. Members compare and hash as their number without being ``int``, and any number makes a
value.
"""

from __future__ import annotations

import enum
from typing import Any, Self


class NativeEnum(enum.Enum):
    """An enumeration that behaves as those of onnxruntime's extension module do.

    ``member == 99`` and ``int(member)`` hold, ``isinstance(member, int)`` does not, ordering and arithmetic are
    refused, and a number without a member gives a value named ``???``.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not hasattr(value, "__index__"):
            raise TypeError(f"{cls.__name__} takes an integer, not {value!r}")
        unnamed = object.__new__(cls)
        unnamed._name_, unnamed._value_ = "???", int(value)
        return unnamed

    def __int__(self) -> int:
        return int(self._value_)

    def __index__(self) -> int:
        return int(self._value_)

    def __eq__(self, other: Any) -> bool:
        return bool(self._value_ == (other._value_ if isinstance(other, NativeEnum) else other))

    def __hash__(self) -> int:
        return hash(self._value_)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self._value_,)


class GraphOptimizationLevel(NativeEnum):
    """How far a model is rewritten before it is placed."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(NativeEnum):
    """Whether independent branches of a graph may run side by side."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(NativeEnum):
    """The order in which ready nodes are taken. Alone among onnxruntime's, its members equal none but their own kind."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ExecutionOrder) and super().__eq__(other)

    __hash__ = NativeEnum.__hash__
