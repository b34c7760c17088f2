"""A structure in another version of its operator and with other types: the model, or nothing where that is not legal."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TypeProto, helper, numpy_helper

from onnxplug import SparseTensor
from onnxplug.contract.types import ELEMENT_CODES
from onnxplug_testkit.kernels.binding import Binding, bound, formals_of, mixed_types, native_types, type_of
from onnxplug_testkit.kernels.cells import Cell, Claimed, Key, schemas
from onnxplug_testkit.kernels.legal import is_legal
from onnxplug_testkit.kernels.structures import Structure
from onnxplug_testkit.kernels.values import PARAMETERS, as_element, element_of_type

Shapes = Sequence[Sequence[int] | None]
"""Of a model's outputs, None where nothing is declared of one."""

_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype", "stash_type")
BESIDES = 21
"""The version of ai.onnx that models of other domains import: one that every runtime knows."""
_LISTS = {AttributeProto.INTS, AttributeProto.FLOATS}


@dataclass(frozen=True, eq=False)
class Operand:
    """An input of a trial: its formal name in the schema, its type, and the structure's value for it (None: omitted)."""

    formal: str
    type: str
    like: Any

    @property
    def is_parameter(self) -> bool:
        """Whether its value belongs to the structure."""
        return self.formal in PARAMETERS


@dataclass(frozen=True, eq=False)
class Target:
    """A structure under one schema and one binding."""

    structure: Structure
    key: Key
    binding: Binding
    inputs: Sequence[Operand]
    attributes: Mapping[str, AttributeProto]
    output_types: Sequence[str]
    schema: Any

    def __repr__(self) -> str:
        inputs = ", ".join(
            "none" if o.like is None else f"{o.type[7:-1]}{list(_shape(o.like) or ())}" for o in self.inputs
        )
        fixed = [
            f"{o.formal}={o.like.tolist()}" for o in self.inputs if o.is_parameter and isinstance(o.like, np.ndarray)
        ]
        attributes = [f"{name}={_spelt(attribute)}" for name, attribute in self.attributes.items()]
        return f"{self.key[1]}({'; '.join([inputs, *attributes, *fixed])})"

    @property
    def native(self) -> bool:
        """Whether version and types are the structure's own, so that its expected outputs hold."""
        same = self.structure.known and [o.type for o in self.inputs] == list(self.structure.input_types)
        return same and self.key == self.structure.key and list(self.output_types) == list(self.structure.output_types)

    @property
    def cells(self) -> list[Cell]:
        """The cells a run of it proves."""
        return [Cell(*self.key, name, text) for name, text in self.binding.items()] or [Cell(*self.key, "", "")]

    def model(self, constants: Mapping[int, np.ndarray] | None = None, shapes: Shapes = ()) -> onnx.ModelProto:
        """The model; inputs ``x0``... are graph inputs, those in ``constants`` initializers. Outputs are ``y0``...; ``shapes``: what is
        declared of those that are there."""
        constants = constants or {}
        domain, op_type, version = self.key
        names = [f"x{i}" if o.like is not None else "" for i, o in enumerate(self.inputs)]
        wanted = [f"y{i}" if v is not None else "" for i, v in enumerate(self.structure.outputs)]
        node = helper.make_node(op_type, names, wanted, name="node", domain=domain)
        node.attribute.extend(self.attributes.values())
        results = [(n, t) for n, t in zip(wanted, self.output_types, strict=True) if n]
        graph = helper.make_graph(
            [node],
            "trial",
            [
                helper.make_value_info(name, type_proto(o.type, _shape(o.like)))
                for i, (name, o) in enumerate(zip(names, self.inputs, strict=True))
                if name and i not in constants
            ],
            [helper.make_value_info(n, type_proto(t, s)) for (n, t), s in itertools.zip_longest(results, shapes)],
            [numpy_helper.from_array(array, names[i]) for i, array in constants.items()],
        )
        imports = [helper.make_opsetid(domain, version)]
        if domain:
            imports.append(helper.make_opsetid("", BESIDES))
        return helper.make_model(graph, opset_imports=imports, ir_version=max(8, _ir(self.binding)))


def retarget(structure: Structure, claimed: Claimed, wanted: Mapping[str, str], schema: Any = None) -> Target | None:
    """The first of ``retargets``, if there is one."""
    return next(retargets(structure, claimed, wanted, schema), None)


def retargets(structure: Structure, claimed: Claimed, wanted: Mapping[str, str], schema: Any) -> Iterator[Target]:
    """``structure`` under the schema of ``claimed`` with the types ``wanted`` (its own where nothing is wanted); none when
    attributes, operands or types do not go into that schema, or when a type that comes with them is not claimed.

    First the wanted type changes alone; then parameters that have the same element as it at first follow (a sequence and its items,
    queries and values).
    """
    schema = schema or schemas()[claimed.key]
    adapted = _adapt(structure, schemas().get(structure.key, schema), schema)
    if adapted is None or len(structure.outputs) > schema.max_output:
        return
    native = native_types(structure, schema, adapted[0])
    mixed = mixed_types(schema, adapted[0])
    if structure.tied and _part(native, wanted):
        return
    attempts = [] if structure.tied and wanted else [dict(wanted)]
    for name, text in wanted.items():
        if name in native:
            element = element_of_type(native[name])
            attempts.append(
                {
                    n: t.replace(f"({element})", f"({element_of_type(text)})")
                    for n, t in native.items()
                    if element_of_type(t) == element
                }
                | dict(wanted)
            )
    for attempt in attempts:
        operands, attributes = adapted[0], dict(adapted[1])
        if any(attempt.get(name, native.get(name)) not in texts for name, texts in mixed.items()):
            continue
        binding = bound(schema, native, claimed, attempt)
        if binding is not None:
            _set_types(schema, attributes, binding)
            target = _target(structure, claimed.key, schema, operands, attributes, binding, mixed)
            if _suits(structure, target) and is_legal(target.model(), schema):
                yield target


def _part(native: Binding, wanted: Mapping[str, str]) -> bool:
    """Whether types that have one element in the structure are to have several."""
    met: dict[str, set[str]] = {}
    for name, text in wanted.items():
        met.setdefault(element_of_type(native.get(name, name)), set()).add(element_of_type(text))
    return any(len(elements) > 1 for elements in met.values())


def _suits(structure: Structure, target: Target) -> bool:
    """Whether the structure's attributes mean something for the type of its first input."""
    return not structure.elements or element_of_type(target.inputs[0].type) in structure.elements


def _target(
    structure: Structure, key: Key, schema: Any, operands: Sequence[tuple[Any, str]], attributes: Mapping[str, AttributeProto],
    binding: Binding, mixed: Collection[str],
) -> Target:  # fmt: skip
    inputs = [
        Operand(formal.name, text if formal.type_str in mixed else type_of(formal, binding), like)
        if like is not None
        else Operand(formal.name, "", None)
        for formal, (like, text) in zip(formals_of(schema.inputs, len(operands)), operands, strict=True)
    ]
    outputs = [type_of(formal, binding) for formal in formals_of(schema.outputs, len(structure.outputs))]
    return Target(structure, key, binding, inputs, attributes, outputs, schema)


def _adapt(
    structure: Structure, own: Any, schema: Any
) -> tuple[list[tuple[Any, str]], dict[str, AttributeProto]] | None:
    """Operands (value, type) and attributes under ``schema``: an operand that used to be an attribute becomes one."""
    attributes = {}
    for name, attribute in structure.attributes.items():
        if name in schema.attributes:
            attributes[name] = attribute
        elif attribute != own.attributes[name].default_value:
            return None
    names = [formal.name for formal in schema.inputs]
    operands: list[tuple[Any, str]] = []
    for formal, value, text in zip(
        formals_of(own.inputs, len(structure.inputs)), structure.inputs, structure.input_types, strict=True
    ):
        if len(operands) < schema.max_input and names and _fits(names, formal.name, len(operands)):
            operands.append((value, text))
        elif formal.name in schema.attributes and value is not None:
            attributes[formal.name] = _as_attribute(schema.attributes[formal.name], value)
        elif value is not None:
            return None
    while operands and operands[-1][0] is None:
        operands.pop()
    missing = [
        n for n, a in schema.attributes.items() if a.required and n not in attributes and n not in _TYPE_ATTRIBUTES
    ]
    return None if missing or len(operands) < schema.min_input else (operands, attributes)


def _fits(names: Sequence[str], formal: str, position: int) -> bool:
    """Versions rename inputs now and then; one that is no parameter is known by its place."""
    at = names[min(position, len(names) - 1)]
    return at == formal or (formal not in PARAMETERS and at not in PARAMETERS and position < len(names))


def _as_attribute(formal: Any, value: np.ndarray) -> AttributeProto:
    kind = int(formal.type.value)
    items = value.ravel().tolist()
    if kind in (AttributeProto.FLOAT, AttributeProto.FLOATS):
        items = [float(item) for item in items]
    plain = items if kind in _LISTS else items[0]
    return helper.make_attribute(formal.name, plain, attr_type=kind)


def _set_types(schema: Any, attributes: dict[str, AttributeProto], binding: Binding) -> None:
    """Write the type of a parameter that only outputs have into the attribute that decides it."""
    read = {formal.type_str for formal in schema.inputs}
    for formal in schema.outputs:
        if formal.type_str in read or formal.type_str not in binding:
            continue
        element = element_of_type(binding[formal.type_str])
        name = next((n for n in _TYPE_ATTRIBUTES if n in schema.attributes), None)
        if name is not None:
            code: Any = ELEMENT_CODES[element]
            if int(schema.attributes[name].type.value) == AttributeProto.STRING:
                code = str(helper.tensor_dtype_to_string(code)).removeprefix("TensorProto.")
            if name in attributes or code != 1 or schema.attributes[name].required:
                attributes[name] = helper.make_attribute(name, code)
        elif "value" in attributes and attributes["value"].type == AttributeProto.TENSOR:
            array = as_element(numpy_helper.to_array(attributes["value"].t), element)
            attributes["value"] = helper.make_attribute("value", numpy_helper.from_array(array))


def type_proto(text: str, shape: Sequence[int] | None = None) -> TypeProto:
    """The type a type string names; ``shape`` is a tensor's."""
    kind, inner = text[: text.index("(")], text[text.index("(") + 1 : -1]
    if kind == "seq":
        return helper.make_sequence_type_proto(type_proto(inner))
    if kind == "optional":
        return helper.make_optional_type_proto(type_proto(inner))
    if kind == "map":
        key, _, value = inner.partition(",")
        proto = TypeProto()
        proto.map_type.key_type = ELEMENT_CODES[key.strip()]
        value = value.strip()
        proto.map_type.value_type.CopyFrom(type_proto(value if "(" in value else f"tensor({value})", ()))
        return proto
    if kind == "sparse_tensor":
        return helper.make_sparse_tensor_type_proto(ELEMENT_CODES[inner], shape)
    return helper.make_tensor_type_proto(ELEMENT_CODES[inner], shape)


def _spelt(attribute: AttributeProto) -> str:
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else str(list(value) if hasattr(value, "__len__") else value)


def _shape(value: Any) -> Sequence[int] | None:
    if isinstance(value, SparseTensor):
        return value.dense_shape()
    return value.shape if isinstance(value, np.ndarray) else None


def _ir(binding: Binding) -> int:
    """The oldest IR version that has the element types bound."""
    codes = [
        ELEMENT_CODES[element_of_type(text)] for text in binding.values() if element_of_type(text) in ELEMENT_CODES
    ]
    newest = max(codes, default=1)
    return 8 if newest <= 16 else 9 if newest <= 20 else 10 if newest <= 22 else 11 if newest <= 23 else 13
