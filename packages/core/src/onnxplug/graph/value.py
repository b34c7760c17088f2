"""One value of a graph, and how the array of a constant one is read, let go and had again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from onnxplug.contract.types import Shape, TensorType, ValueType

if TYPE_CHECKING:
    from onnxplug.graph.ir import Node

KEPT = 1 << 16
"""Bytes of a constant that stays in memory in any case."""

Load = Callable[[], "np.ndarray"]


class Value:
    """One value. ``constant`` is the array of an initializer nobody can override, ``default`` that of one a caller
    may. ``is_noted``: its type has sizes that only the model says of it, or of what it is made of, which may be wrong. ``told``: what
    onnxruntime, which follows fewer operators and keeps what the model declares, tells of the type; None where that is ``type``."""

    __slots__ = (
        "_again",
        "_constant",
        "_load",
        "_original",
        "consumers",
        "default",
        "is_noted",
        "name",
        "producer",
        "told",
        "type",
    )

    def __init__(self, name: str, type_: ValueType | None = None, constant: np.ndarray | None = None) -> None:
        self.name, self.type = name, type_
        self.default: np.ndarray | None = None
        self.producer: Node | None = None
        self.consumers: list[Node] = []
        self.is_noted = False
        self.told: ValueType | None = None
        self._constant: np.ndarray | None = constant
        self._load: Load | None = None
        self._again: Load | None = None
        self._original: Value | None = None

    @property
    def constant(self) -> np.ndarray | None:
        """The array, read now if it has not been; None for what is no constant."""
        if self._constant is None and self._load is not None:
            self._constant = self._load()
        return self._constant

    @constant.setter
    def constant(self, array: np.ndarray | None) -> None:
        self.hold(array)

    def hold(self, array: np.ndarray | Load | None, again: Load | None = None) -> None:
        """Make the value constant: an array or what reads it when it is needed, and ``again`` how it is had once it was let
        go."""
        self._constant, self._load = (None, array) if callable(array) else (array, None)
        self._again = again

    def release(self) -> None:
        """Whoever read the constant has what it needs of it: the array goes, if it is worth it and can be had again should
        anyone ask."""
        if self._again is not None and (self._constant is None or self._constant.nbytes > KEPT):
            self._constant, self._load = None, self._again
            if self._original is not None:
                self._original.release()

    @property
    def source(self) -> Load | None:
        """How a constant is had again, None where it cannot be."""
        return self._again

    def copied(self) -> Value:
        """A value of the same name and type, of the same array if it is constant, that nothing makes or reads yet."""
        made = Value(self.name, self.type)
        made.is_noted, made.told = self.is_noted, self.told
        made.default, made._constant, made._load, made._again = self.default, self._constant, self._load, self._again
        made._original = self
        return made

    @property
    def is_constant(self) -> bool:
        """Whether the value is constant, without reading its bytes."""
        return self._constant is not None or self._load is not None

    def view(self) -> np.ndarray | None:
        """The array for one who needs it but now: what was not read, and is large, is looked at where it lies."""
        lies = None if self._constant is not None or self._again is None else self._again()
        return self.constant if lies is None or lies.nbytes <= KEPT else lies

    @property
    def is_read(self) -> bool:
        """Whether the array of a constant is in memory."""
        return self._constant is not None

    @property
    def was_released(self) -> bool:
        """Whether a constant has been read and let go."""
        return self._load is not None and self._load is self._again

    @property
    def dtype(self) -> np.dtype | None:
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> Shape | None:
        return self.type.shape if isinstance(self.type, TensorType) else None

    def __repr__(self) -> str:
        return f"<Value {self.name}: {self.type}{list(self.shape) if self.shape is not None else ''}>"
