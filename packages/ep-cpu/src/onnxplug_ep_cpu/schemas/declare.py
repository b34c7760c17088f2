"""Schemas written as one-line signatures, and what an inference function sees of a node.

``"X: T, bias: T? -> Y: T, mask: bool?"`` names inputs and outputs with their types: a type variable, or an element
type. ``?`` marks what may be omitted, ``*`` the tail that may repeat, ``*~`` one whose entries may differ in type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from onnx import AttributeProto, GraphProto, TypeProto  # not onnx.helper, which brings the whole package
from onnx.defs import OpSchema
from onnx.shape_inference import InferenceContext

from onnxplug.contract.kernels import type_strings
from onnxplug.contract.records import record
from onnxplug.contract.types import ELEMENT_CODES, ELEMENT_NAMES, Shape

MS = "com.microsoft"

Infer = Callable[["Call"], Sequence[Shape | None]]
"""The shape of each output, in order; trailing ones may be left out."""

_FORMAL = re.compile(r"(\w+): (\w+)(\?|\*~|\*|)")
_OPTIONS = {
    "": OpSchema.FormalParameterOption.Single,
    "?": OpSchema.FormalParameterOption.Optional,
    "*": OpSchema.FormalParameterOption.Variadic,
    "*~": OpSchema.FormalParameterOption.Variadic,
}
_KINDS: dict[Any, OpSchema.AttrType] = {
    int: OpSchema.AttrType.INT,
    float: OpSchema.AttrType.FLOAT,
    str: OpSchema.AttrType.STRING,
    list[int]: OpSchema.AttrType.INTS,
    list[float]: OpSchema.AttrType.FLOATS,
    list[str]: OpSchema.AttrType.STRINGS,
    GraphProto: OpSchema.AttrType.GRAPH,
}
_FIELDS = {
    AttributeProto.INT: "i",
    AttributeProto.FLOAT: "f",
    AttributeProto.STRING: "s",
    AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats",
    AttributeProto.STRINGS: "strings",
}
"""Where an attribute of a type keeps its value."""


@record(frozen=True, slots=True)
class Required:
    """An attribute that a node must have, of type ``kind`` (int, list[int], ...)."""

    kind: Any


class Call:
    """One node during inference: its inputs' types and constants, and its attributes."""

    __slots__ = ("_context", "_defaults")

    def __init__(self, context: InferenceContext, defaults: Mapping[str, Any]) -> None:
        self._context, self._defaults = context, defaults

    def _type(self, index: int) -> Any:
        given = index < self._context.get_num_inputs() and self._context.has_input(index)
        type_ = self._context.get_input_type(index) if given else None
        kind = None if type_ is None else type_.WhichOneof("value")
        return getattr(type_, kind) if kind in ("tensor_type", "sparse_tensor_type") else None

    @property
    def inputs(self) -> int:
        """How many inputs the node has."""
        return self._context.get_num_inputs()

    def element(self, index: int) -> str | None:
        """Element type of an input; None when it is omitted or unknown."""
        type_ = self._type(index)
        return ELEMENT_NAMES.get(type_.elem_type) if type_ is not None else None

    def shape(self, index: int) -> Shape | None:
        """Shape of an input; None when it is omitted or even its rank is unknown."""
        type_ = self._type(index)
        if type_ is None or not type_.HasField("shape"):
            return None
        return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in type_.shape.dim)

    def ints(self, index: int) -> list[int] | None:
        """The numbers of a constant input, flattened."""
        data = self._context.get_input_data(index) if index < self.inputs else None
        if data is None:
            return None
        from onnx import numpy_helper

        return [int(n) for n in numpy_helper.to_array(data).reshape(-1)]

    def attribute(self, name: str) -> Any:
        """An attribute's value, else its default, else None."""
        proto = self._context.get_attribute(name)
        if proto is None:
            return self._defaults.get(name)
        value = getattr(proto, _FIELDS[proto.type])
        return value.decode() if isinstance(value, bytes) else value if isinstance(value, int | float) else list(value)


@record(frozen=True, slots=True)
class Declaration:
    """What ``contrib`` was given for one operator."""

    op_type: str
    signature: str
    infer: Infer
    domain: str
    types: Mapping[str, Sequence[str]]
    attributes: Mapping[str, Any]
    unbound: Mapping[str, Callable[[Call], str | None]] = field(default_factory=dict)

    def schema(self) -> OpSchema:
        """The declaration as onnx's object."""
        inputs, outputs = (self._formals(side) for side in self.signature.split(" -> "))
        schema = OpSchema(
            self.op_type,
            self.domain,
            1,
            inputs=inputs,
            outputs=outputs,
            type_constraints=[(name, sorted(type_strings(elements)), "") for name, elements in self.types.items()],
            attributes=[_attribute(name, value) for name, value in self.attributes.items()],
        )
        schema.set_type_and_shape_inference_function(self._run)
        return schema

    def _formals(self, side: str) -> list[OpSchema.FormalParameter]:
        return [
            OpSchema.FormalParameter(
                name,
                type_ if type_ in self.types else f"tensor({type_})",
                param_option=_OPTIONS[mark],
                is_homogeneous=mark != "*~",
            )
            for name, type_, mark in _FORMAL.findall(side)
        ]

    def _run(self, context: InferenceContext) -> None:
        defaults = {k: v for k, v in self.attributes.items() if not isinstance(v, Required) and _kind(v) is None}
        call = Call(context, defaults)
        inputs, outputs = (_FORMAL.findall(side) for side in self.signature.split(" -> "))
        bound: dict[str, str | None] = {}
        for index, (_, type_, _mark) in enumerate(inputs):
            bound[type_] = bound.get(type_) or call.element(index)
        for index, ((_, type_, _mark), shape) in enumerate(zip(outputs, self.infer(call), strict=False)):
            if index >= context.get_num_outputs():
                break
            element = bound.get(type_) or (type_ if type_ not in self.types else None)
            if element is None and type_ in self.unbound:
                element = self.unbound[type_](call)
            if element is not None:
                context.set_output_type(index, _tensor(element, shape))


_declared: list[Declaration] = []


def declared() -> Sequence[Declaration]:
    """All declarations of the modules imported so far."""
    return _declared


def contrib(
    op_type: str,
    signature: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    domain: str = MS,
    unbound: Mapping[str, Callable[[Call], str | None]] | None = None,
    **types: Sequence[str],
) -> Callable[[Infer], Infer]:
    """Enter an operator whose output shapes the decorated function tells.

    ``attributes``: a default value, a type (int, list[float], ...) for an attribute without default, or ``Required``.
    ``types``: the elements each type variable takes. ``unbound`` tells the element of a type variable that no input
    of the node binds.
    """

    def enter(infer: Infer) -> Infer:
        _declared.append(Declaration(op_type, signature, infer, domain, types, attributes or {}, unbound or {}))
        return infer

    return enter


def _attribute(name: str, value: Any) -> OpSchema.Attribute:
    if isinstance(value, Required):
        return OpSchema.Attribute(name, _KINDS[value.kind], required=True)
    kind = _kind(value)
    if kind is not None:
        return OpSchema.Attribute(name, kind, required=False)
    sample = value[0] if isinstance(value, list) else value
    kind = _KINDS[list[type(sample)] if isinstance(value, list) else type(sample)]  # type: ignore[misc]
    proto = AttributeProto(name=name, type=kind.value)  # type: ignore[attr-defined]  # an enumeration to onnx's stubs only
    if isinstance(value, list):
        getattr(proto, _FIELDS[proto.type]).extend(value)
    else:
        setattr(proto, _FIELDS[proto.type], value.encode() if isinstance(value, str) else value)
    return OpSchema.Attribute(name, proto)


def _kind(value: Any) -> OpSchema.AttrType | None:
    try:
        return _KINDS.get(value)
    except TypeError:  # a list is a default value
        return None


def _tensor(element: str, shape: Shape | None) -> TypeProto:
    proto = TypeProto()
    proto.tensor_type.elem_type = ELEMENT_CODES[element]
    if shape is not None:
        proto.tensor_type.shape.SetInParent()
        for dim in shape:
            added = proto.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                added.dim_value = dim
            elif dim is not None:
                added.dim_param = dim
    return proto
