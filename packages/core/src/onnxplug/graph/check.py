"""Whether nodes obey their schemas, bodies their constructs, and functions end."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from onnxplug.contract.errors import Fail, InvalidGraph
from onnxplug.contract.types import TensorType, ValueType
from onnxplug.graph.choices import check_choices
from onnxplug.graph.ir import Node
from onnxplug.graph.schemas import formals
from onnxplug.graph.value import Value
from onnxplug.load.model import normal_domain

Key = tuple[str, str, str]
Values = Sequence[Value | None]
_MAX_DEPTH, _MAX_NODES = 200, 1 << 20
"""Limits of what model-local functions may unfold to."""

_ONNX = frozenset({"", "ai.onnx.ml", "ai.onnx.preview.training"})
_sound: set[Any] = set()
"""Forms of nodes that were found to obey their schemas: a network's layers are alike."""
_REMEMBERED = 4096


def check_outputs(graph: Any, known: Container[str]) -> None:
    """Fail where a GraphProto gives what is not among the names ``known`` in it."""
    for output in graph.output:
        if output.name not in known:
            raise Fail(f"This is an invalid model. Graph output ({output.name}) does not exist in the graph.")


def check_order(body: Any, known: Container[str]) -> None:
    """InvalidGraph where a node of a nested GraphProto reads what is not among the names ``known`` in it, or what a later node
    makes."""
    later = {name for node in body.node for name in node.output if name}
    for node in body.node:
        for name in node.input:
            if name in later or (name and name not in known):
                raise InvalidGraph(
                    f"This is an invalid model. Error Nodes in a graph must be topologically sorted, however input '{name}' of "
                    f"node: \nname: {node.name} OpType: {node.op_type}\n is not output of any previous nodes."
                )
        later.difference_update(node.output)


def check_initializer(name: str, declared: ValueType | None, type_: TensorType) -> None:
    """Fail when an initializer is not what the graph input of its name says."""
    if not isinstance(declared, TensorType):
        return
    if declared.element != type_.element:
        raise Fail(
            f"Type Error: Data in initializer '{name}' has element type {type_} but usage of initializer in graph expects {declared}"
        )
    shape = declared.shape
    if shape is not None and (
        len(shape) != len(type_.shape or ())
        or any(isinstance(d, int) and d != e for d, e in zip(shape, type_.shape or (), strict=True))
    ):
        raise Fail(
            f"Type Error: Shape of initializer {name} does not match. {list(shape)} != {list(type_.shape or ())}"
        )


def check_node(node: Node, schema: Any, kinds: Sequence[tuple[str, int]]) -> None:
    """Raise InvalidGraph when the node breaks its operator's schema: arity, omitted operands, unknown, missing or mistyped
    attributes (``kinds``: their names and AttributeTypes); Fail for attributes of values that mean nothing, and for a Constant of no
    value or several."""
    form = schema, *(tuple(v is None for v in side) for side in (node.inputs, node.outputs)), tuple(kinds)
    if form not in _sound:
        _check_form(node, schema, kinds)
        if len(_sound) >= _REMEMBERED:
            _sound.clear()
        _sound.add(form)
    check_choices(node)


def _check_form(node: Node, schema: Any, kinds: Sequence[tuple[str, int]]) -> None:
    given = len(node.inputs)
    if not schema.min_input <= given <= schema.max_input:
        raise _invalid(
            node,
            f"{_formal(node)} has input size {given} not in range [min={schema.min_input}, max={schema.max_input}].",
        )
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        raise _invalid(
            node,
            f"{_formal(node)} has output size {len(node.outputs)} not in range "
            f"[min={schema.min_output}, max={schema.max_output}].",
        )
    for index, (formal, value) in enumerate(formals(schema, node.inputs)):
        if (
            value is None
            and formal.option != formal.option.Optional
            and (formal.option == formal.option.Single or _is_each_needed(node))
        ):
            raise _invalid(
                node,
                f"Node ({node.name})'s input {index} is marked {formal.option.name.lower()} but has an empty string in the graph",
            )
    for index, (formal, value) in enumerate(zip(schema.outputs, node.outputs, strict=False)):
        if value is None and formal.option == formal.option.Single:
            raise _invalid(
                node, f"Node ({node.name})'s output {index} is marked single but has an empty string in the graph"
            )
    _check_attributes(node, schema.attributes, kinds)


def _is_each_needed(node: Node) -> bool:
    """Whether none of a variadic operand's values may be omitted: in all operators of ONNX but those whose bodies take them."""
    return node.domain in _ONNX and node.op_type not in ("Loop", "Scan")


def _check_attributes(node: Node, known: Mapping[str, Any], kinds: Sequence[tuple[str, int]]) -> None:
    seen = set()
    for name, kind in kinds:
        formal = known.get(name)
        if name in seen:
            raise _invalid(node, f"Attribute '{name}' appeared multiple times.")
        seen.add(name)
        if formal is None:
            raise _invalid(node, f"Unrecognized attribute: {name} for operator {node.op_type}")
        if kind != int(formal.type.value):
            wanted, got = _kind(int(formal.type.value)), _kind(kind)
            raise _invalid(
                node, f"Mismatched attribute type in '{node.name} : {name}'. Expected: '{wanted}', actual: '{got}'"
            )
    for name, formal in known.items():
        if formal.required and name not in seen:
            raise _invalid(node, f"Required attribute '{name}' is missing.")
    if node.op_type == "Constant" and node.domain == "" and len(seen) != 1:
        raise Fail(
            f"Node ({node.name}) Op (Constant) [ShapeInferenceError] One and only one of its attributes must be specified, "
            f"it has {sorted(seen)}"
        )


def check_types(node: Node) -> None:
    """Raise InvalidGraph when an input has a type its schema forbids, Fail when one type parameter is bound to two types."""
    bound: dict[str, str] = {}
    for formal, value in formals(node.schema, node.inputs):
        if value is None or value.type is None:
            continue
        got = str(value.type)
        if formal.types and got not in formal.types:
            raise InvalidGraph(
                f"This is an invalid model. Type Error: Type '{got}' of input parameter ({value.name}) of operator "
                f"({node.op_type}) in node ({node.name}) is invalid."
            )
        first = bound.setdefault(formal.type_str, got)
        if first != got and formal.is_homogeneous and "(" not in formal.type_str and isinstance(value.type, TensorType):
            raise Fail(
                f"Type Error: Type parameter ({formal.type_str}) of Optype ({node.op_type}) bound to different types "
                f"({first} and {got} in node ({node.name})."
            )


def check_bodies(node: Node) -> None:
    """Raise Fail when the bodies of an If, Loop or Scan take or give another number of values than the node, and those of a node that
    generates text another than its model has."""
    if node.domain:
        from onnxplug.graph.generation import layout_of  # which few models have

        layout_of(node)
        return
    given, made = len(node.inputs), len(node.outputs)
    if node.op_type == "If":
        takes, gives = 0, made
    elif node.op_type == "Loop":
        takes, gives = given, made + 1
    else:
        scanned, leading = int(node.attributes["num_scan_inputs"]), int(node.since_version == 8)
        takes, gives = given - leading, made
        if not 1 <= scanned <= takes:
            raise Fail(f"Node ({node.name}) Op (Scan) num_scan_inputs is {scanned}, the node has {takes} inputs")
    for name, body in node.subgraphs.items():
        for what, has, wanted in (("inputs", len(body.inputs), takes), ("outputs", len(body.outputs), gives)):
            if has != wanted:
                raise Fail(
                    f"Node ({node.name}) Op ({node.op_type}) {name} has {has} {what}, the node asks for {wanted}"
                )


def check_functions(functions: Mapping[Key, Any], graph: Any) -> None:
    """Raise InvalidGraph when a function calls itself, directly or through others, or when ``graph`` would unfold to more nodes
    than any model has."""
    sizes: dict[Key, int] = {}

    def size(nodes: Any, path: tuple[Key, ...]) -> int:
        total = 0
        for node in _walk(nodes):
            key = (normal_domain(node.domain), node.op_type, node.overload)
            if key in path or len(path) > _MAX_DEPTH:
                what = "is recursive" if key in path else f"nests deeper than {_MAX_DEPTH} functions"
                raise InvalidGraph(
                    f"This is an invalid model. Function '{path[-1][1]}' of domain '{path[-1][0]}' {what}."
                )
            if key in functions and key not in sizes:
                sizes[key] = size(functions[key].node, (*path, key))
            total += sizes.get(key, 1)
        return total

    if functions and size(graph.node, ()) > _MAX_NODES:
        raise InvalidGraph(f"This is an invalid model. Its functions unfold to more than {_MAX_NODES} nodes.")


def _walk(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == attribute.GRAPH:
                yield from _walk(attribute.g.node)


def invalid_node(name: str, op_type: str, domain: str, inputs: Values, outputs: Values, text: str) -> Exception:
    """The error of a node that breaks a rule, in onnxruntime's words: with what it reads and makes, and the types known of these."""
    where = f'("{name}", {op_type}, "{domain}", -1) : ({_told(inputs)}) -> ({_told(outputs)}) '
    return InvalidGraph(f"This is an invalid model. In Node, {where}, Error {text}")


def _told(values: Values) -> str:
    types = ("" if v is None or v.type is None else f": {v.type}" for v in values)
    return "".join(f'"{"" if v is None else v.name}"{type_},' for v, type_ in zip(values, types, strict=True))


def _invalid(node: Node, text: str) -> Exception:
    return invalid_node(node.name, node.op_type, node.domain, node.inputs, node.outputs, text)


def _kind(number: int) -> str:
    """The name of an AttributeType; a number that is none stays one."""
    from onnx import AttributeProto

    return next((name for name, known in AttributeProto.AttributeType.items() if known == number), str(number))


def _formal(node: Node) -> str:
    return f"Node({node.name}) with schema({node.domain}::{node.op_type}:{node.since_version})"
