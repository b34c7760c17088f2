"""``OpSchema``: onnx's schemas with the names and enumerations that onnxruntime's extension module has for what is in them."""

from __future__ import annotations

from typing import Any

from onnxplug.contract.records import record
from onnxplug.session.enums import NativeEnum

_INFINITE = 2**31 - 1


class OpSchema:
    """The schema of one version of an operator."""

    class FormalParameterOption(NativeEnum):
        """Whether an operand may be left out, or stand for several."""

        Single = 0
        Optional = 1
        Variadic = 2

    class AttrType(NativeEnum):
        """Types of attributes, by their numbers in AttributeProto."""

        FLOAT = 1
        INT = 2
        STRING = 3
        TENSOR = 4
        GRAPH = 5
        FLOATS = 6
        INTS = 7
        STRINGS = 8
        TENSORS = 9
        GRAPHS = 10
        SPARSE_TENSOR = 11
        SPARSE_TENSORS = 12

    class SupportType(NativeEnum):
        """Whether an operator is there to stay."""

        COMMON = 0
        EXPERIMENTAL = 1

    @record(frozen=True, slots=True)
    class FormalParameter:
        """An input or output: ``typeStr`` is a type or the name of a type parameter, ``types`` what that allows."""

        name: str
        types: set[str]
        typeStr: str
        description: str
        option: OpSchema.FormalParameterOption
        isHomogeneous: bool

    @record(frozen=True, slots=True)
    class Attribute:
        """An attribute; ``_default_value`` is a serialized AttributeProto, empty without a default."""

        name: str
        description: str
        type: OpSchema.AttrType
        required: bool
        _default_value: bytes

    @record(frozen=True, slots=True)
    class TypeConstraintParam:
        """A type parameter and the types it may be."""

        type_param_str: str
        description: str
        allowed_type_strs: list[str]

    def __init__(self, schema: Any) -> None:
        """``schema``: an ``onnx.defs.OpSchema``."""
        self._schema = schema

    @staticmethod
    def is_infinite(number: int) -> bool:
        """Whether a most number of operands means any."""
        return number == _INFINITE

    @property
    def file(self) -> str:
        """The source file that registers it."""
        return str(self._schema.file)

    @property
    def line(self) -> int:
        """The line of that file."""
        return int(self._schema.line)

    @property
    def doc(self) -> str:
        """What the operator does, in markdown."""
        return str(self._schema.doc)

    @property
    def since_version(self) -> int:
        """The version of the domain that brought it."""
        return int(self._schema.since_version)

    @property
    def deprecated(self) -> bool:
        """Whether that version took the operator away."""
        return bool(self._schema.deprecated)

    @property
    def domain(self) -> str:
        """The domain; empty for ONNX's own."""
        return str(self._schema.domain)

    @property
    def name(self) -> str:
        """The operator."""
        return str(self._schema.name)

    @property
    def min_input(self) -> int:
        """The least number of inputs."""
        return int(self._schema.min_input)

    @property
    def max_input(self) -> int:
        """The most inputs; see ``is_infinite``."""
        return int(self._schema.max_input)

    @property
    def min_output(self) -> int:
        """The least number of outputs."""
        return int(self._schema.min_output)

    @property
    def max_output(self) -> int:
        """The most outputs; see ``is_infinite``."""
        return int(self._schema.max_output)

    @property
    def has_type_and_shape_inference_function(self) -> bool:
        """Whether types and shapes of its outputs can be inferred."""
        return bool(self._schema.has_type_and_shape_inference_function)

    @property
    def support_level(self) -> SupportType:
        """Whether it is there to stay."""
        return OpSchema.SupportType(self._schema.support_level.value)

    @property
    def attributes(self) -> dict[str, Attribute]:
        """Attributes by name."""
        return {
            name: OpSchema.Attribute(
                name, each.description, OpSchema.AttrType(each.type.value), each.required, each._default_value
            )
            for name, each in self._schema.attributes.items()
        }

    @property
    def inputs(self) -> list[FormalParameter]:
        """Inputs, in order."""
        return list(map(_parameter, self._schema.inputs))

    @property
    def outputs(self) -> list[FormalParameter]:
        """Outputs, in order."""
        return list(map(_parameter, self._schema.outputs))

    @property
    def type_constraints(self) -> list[TypeConstraintParam]:
        """Type parameters."""
        return [
            OpSchema.TypeConstraintParam(each.type_param_str, each.description, list(each.allowed_type_strs))
            for each in self._schema.type_constraints
        ]


def _parameter(given: Any) -> OpSchema.FormalParameter:
    option = OpSchema.FormalParameterOption(given.option.value)
    return OpSchema.FormalParameter(
        given.name, set(given.types), given.type_str, given.description, option, given.is_homogeneous
    )
