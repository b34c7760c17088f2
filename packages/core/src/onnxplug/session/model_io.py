"""What a session tells about its model: ``NodeArg`` for inputs and outputs, ``ModelMetadata``."""

from __future__ import annotations

from dataclasses import field

from onnxplug.contract.errors import InvalidGraph
from onnxplug.contract.graph import ValueView
from onnxplug.contract.records import record
from onnxplug.contract.types import OptionalType, SparseTensorType, TensorType, ValueType

UNSET_VERSION = 9223372036854775807
"""``ModelMetadata.version`` of a model that has none (int64's maximum, as in onnxruntime)."""


def declared(value: ValueView) -> ValueType:
    """The type of a graph input or output. InvalidGraph when there is none."""
    if value.type is None:
        raise InvalidGraph(
            f"This is an invalid model. The type of '{value.name}' is neither declared nor to be inferred."
        )
    return value.type


class NodeArg:
    """One declared input, output or overridable initializer."""

    __slots__ = ("_name", "_shape", "_type", "value_type")

    def __init__(self, name: str, value_type: ValueType) -> None:
        self._name, self.value_type, self._type = name, value_type, str(value_type)
        declared = value_type.element if isinstance(value_type, OptionalType) else value_type
        shape = declared.shape if isinstance(declared, TensorType | SparseTensorType) else None
        self._shape: list[int | str | None] = [None if dim == "" else dim for dim in shape or ()]

    @property
    def name(self) -> str:
        """The name by which it is fed or fetched."""
        return self._name

    @property
    def type(self) -> str:
        """The type string: ``tensor(float)``, ``seq(tensor(float))``, ``map(int64,tensor(float))``, ..."""
        return self._type

    @property
    def shape(self) -> list[int | str | None]:
        """Dimensions: a number, a symbol, or None where nothing is known. Empty for scalars, unknown rank and
        non-tensors alike.
        """
        return list(self._shape)

    def __str__(self) -> str:
        return f"NodeArg(name='{self._name}', type='{self._type}', shape={self._shape})"


@record(slots=True, eq=False, repr=False)
class ModelMetadata:
    """Metadata stored in a model. Setting an attribute changes this object only."""

    custom_metadata_map: dict[str, str] = field(default_factory=dict)
    description: str = ""
    domain: str = ""
    graph_description: str = ""
    graph_name: str = ""
    producer_name: str = ""
    version: int = UNSET_VERSION
