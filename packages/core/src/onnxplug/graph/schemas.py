"""Operator schemas: which one is in force for a node, its formal parameters, and whether a node obeys it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.errors import Fail, InvalidGraph
from onnxplug.contract.types import TensorType

if TYPE_CHECKING:
    from onnxplug.graph.ir import Node, Value

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"}
)
"""Operators that may answer differently each time."""

Evaluate = Callable[["Node", Sequence["np.ndarray | None"]], "Sequence[np.ndarray] | None"]
"""Runs one node on host arrays; None when it cannot be run here. Injected by the session, which knows the providers."""


class Schemas:
    """onnx's schemas plus those a session's providers bring for domains of their own."""

    def __init__(self, extra: Iterable[Any] = ()) -> None:
        self._extra: dict[tuple[str, str], list[Any]] = {}
        for schema in extra:
            self._extra.setdefault((schema.domain, schema.name), []).append(schema)

    def find(self, domain: str, op_type: str, opset: int) -> Any:
        """The schema of ``op_type`` in force under ``opset``, or None."""
        own = [s for s in self._extra.get((domain, op_type), ()) if s.since_version <= opset]
        if own:
            return max(own, key=lambda s: s.since_version)
        return _onnx_schema(domain, op_type, opset)

    def knows_domain(self, domain: str) -> bool:
        """Whether any schema of that domain is known."""
        return any(d == domain for d, _ in self._extra) or domain in _onnx_domains()


@functools.lru_cache(maxsize=4096)
def _onnx_schema(domain: str, op_type: str, opset: int) -> Any:
    from onnx import defs

    try:
        schema = defs.get_schema(op_type, opset, domain)
        # A deprecated operator still runs by the last schema that said what it does.
        return defs.get_schema(op_type, schema.since_version - 1, domain) if schema.deprecated else schema
    except defs.SchemaError:
        return None


@functools.cache
def _onnx_domains() -> frozenset[str]:
    from onnx import defs

    return frozenset(s.domain for s in defs.get_all_schemas_with_history())


def check_node(node: Node, opset: int | None) -> None:
    """Raise InvalidGraph when the node breaks its schema: arity, unknown or missing attributes, attribute types."""
    schema = node.schema
    where = f'This is an invalid model. In Node, ("{node.name}", {node.op_type}, "{node.domain}", {node.since_version})'
    given = len(node.inputs)
    if not schema.min_input <= given <= schema.max_input:
        raise InvalidGraph(
            f"{where}, Error Node ({node.name}) has input size {given} not in range [min={schema.min_input}, max={schema.max_input}]."
        )
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        raise InvalidGraph(
            f"{where}, Error Node ({node.name}) has output size {len(node.outputs)} not in range "
            f"[min={schema.min_output}, max={schema.max_output}]."
        )
    known = schema.attributes
    for proto in node.attribute_protos:
        formal = known.get(proto.name)
        if formal is None:
            raise InvalidGraph(f"{where}, Error Unrecognized attribute: {proto.name} for operator {node.op_type}")
        if int(proto.type) != int(formal.type.value) and not proto.ref_attr_name:
            raise InvalidGraph(f"{where}, Error Mismatched attribute type in '{node.name} : {proto.name}'")
    given_names = {p.name for p in node.attribute_protos}
    for name, formal in known.items():
        if formal.required and name not in given_names:
            raise InvalidGraph(f"{where}, Error Required attribute '{name}' is missing.")


def formals(schema: Any, values: list[Value | None], outputs: bool = False) -> Iterable[tuple[Any, Value | None]]:
    """(formal parameter, value) pairs, the last formal repeated over a variadic tail."""
    parameters = schema.outputs if outputs else schema.inputs
    for index, value in enumerate(values):
        if parameters:
            yield parameters[min(index, len(parameters) - 1)], value


def constraint_types(node: Node) -> dict[str, str]:
    """Constraint name -> type string of the first value bound to it. Without a schema (contrib operators): "T" of the
    first input."""
    found: dict[str, str] = {}
    if node.schema is None:
        for value in (*node.inputs, *node.outputs):
            if value is not None and value.type is not None:
                found.setdefault("T", str(value.type))
        return found
    for outputs, values in ((False, node.inputs), (True, node.outputs)):
        for formal, value in formals(node.schema, values, outputs):
            if value is not None and value.type is not None:
                found.setdefault(formal.type_str, str(value.type))
    return found


def check_types(node: Node) -> None:
    """Raise Fail when an input has a type its schema forbids, or one type parameter is bound to two types."""
    bound: dict[str, str] = {}
    for formal, value in formals(node.schema, node.inputs):
        if value is None or value.type is None:
            continue
        got = str(value.type)
        if formal.types and got not in formal.types:
            raise Fail(
                f"Type Error: Type '{got}' of input parameter ({value.name}) of operator ({node.op_type}) in node ({node.name}) is invalid."
            )
        first = bound.setdefault(formal.type_str, got)
        if first != got and formal.is_homogeneous and "(" not in formal.type_str and isinstance(value.type, TensorType):
            raise Fail(
                f"Type Error: Type parameter ({formal.type_str}) of Optype ({node.op_type}) bound to different types "
                f"({first} and {got} in node ({node.name})."
            )
