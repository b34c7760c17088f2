"""The read-only view of a graph that providers are shown: nodes in topological order, typed values, typed
attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxplug.contract.types import Shape, ValueType

if TYPE_CHECKING:
    import onnx


class ValueView(Protocol):
    """One value (edge) of a graph. Names are unique within a model after loading."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> ValueType | None:
        """The whole type; None when inference could not tell."""

    @property
    def dtype(self) -> np.dtype | None:
        """Element dtype of a dense tensor, else None."""

    @property
    def shape(self) -> Shape | None:
        """The dimensions: an int, a symbol's name, or None for one that is unknown. None when the rank is unknown."""

    @property
    def constant(self) -> np.ndarray | None:
        """The array of an initializer that no caller can override, else None."""

    @property
    def is_constant(self) -> bool:
        """Whether ``constant`` is an array. Asking does not read it."""

    def view(self) -> np.ndarray | None:
        """``constant`` for a caller that packs or copies it at once and then calls ``release``. Where it has not been read yet, this is a
        view of the model's file, which takes a fraction of the time. Do not keep it: who writes to the file changes it."""

    def release(self) -> None:
        """Say that the constant's array is not needed any more, having been packed or copied. The session drops it where it can read it
        again: ``constant`` gives the same array to whoever asks later."""

    @property
    def producer(self) -> NodeView | None: ...
    @property
    def consumers(self) -> Sequence[NodeView]:
        """Nodes of this graph that read the value; nested graphs that capture it count through the node that owns
        them."""


class NodeView(Protocol):
    """One node. ``inputs`` holds None for an omitted optional input; ``outputs`` likewise."""

    @property
    def name(self) -> str: ...
    @property
    def op_type(self) -> str: ...
    @property
    def domain(self) -> str: ...
    @property
    def since_version(self) -> int:
        """Version of the schema in force (the newest not above the opset the graph imports)."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """int, float, str, NumPy array, or a list of those, as the model gives them: one that the model leaves out is missing here too,
        even where the operator has a default. Numbers of type float are float32's, as Python floats. Graphs are under ``subgraphs``."""

    @property
    def inputs(self) -> Sequence[ValueView | None]: ...
    @property
    def outputs(self) -> Sequence[ValueView | None]: ...
    @property
    def captures(self) -> Sequence[ValueView]:
        """Outer values that the nested graphs of this node read."""

    @property
    def subgraphs(self) -> Mapping[str, GraphView]:
        """The graphs among the attributes, by name. A Gradient node has one too, "body": the tensor y that it names as
        a function of xs and zs."""

    @property
    def constraint_types(self) -> Mapping[str, str]:
        """Type constraint of the schema ("T") -> type string ("tensor(float)") of the first value bound to it."""

    def proto(self) -> onnx.NodeProto:
        """The node as an ``onnx.NodeProto`` with the values' names here, nested graphs in it."""


class GraphView(Protocol):
    """A graph or nested graph."""

    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> Sequence[NodeView]:
        """Topological order."""

    @property
    def inputs(self) -> Sequence[ValueView]: ...
    @property
    def outputs(self) -> Sequence[ValueView]: ...
    @property
    def parent(self) -> GraphView | None: ...
    @property
    def identity(self) -> str:
        """A key for what a provider keeps of this graph as it is now, the same in later processes: it depends on the model, the session's
        options, the providers and their code. Empty where the graph cannot be recognised in a later session."""

    def value(self, name: str) -> ValueView: ...
    def opset(self, domain: str) -> int | None:
        """Version of the domain's operator set that the model imports."""
