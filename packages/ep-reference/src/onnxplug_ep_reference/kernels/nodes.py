"""From a node as the contract shows it to the ``NodeProto`` that onnx.reference's classes are made from.

A class fills attributes a node leaves out from its own schema, which may be a later one than the node's; so the defaults of the
node's version are written out, and attributes the class has no notion of are dropped where they change nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, defs, helper, numpy_helper

from onnxplug.contract import NodeView
from onnxplug_ep_reference.kernels.catalogue import OpClass

_INERT = frozenset({"consumed_inputs"})  # opset 1: a memory hint
_NOT_SHOWN = frozenset({AttributeProto.TYPE_PROTO, AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS})


def to_proto(node: NodeView, implementation: OpClass) -> NodeProto:
    """The node with the attributes its class understands, those of its schema version at their defaults included."""
    schema = _schema(node.op_type, node.since_version, node.domain)
    proto = helper.make_node(
        node.op_type,
        [f"x{i}" if value is not None else "" for i, value in enumerate(node.inputs)],
        [f"y{i}" if value is not None else "" for i, value in enumerate(node.outputs)],
        name=node.name,
        domain=node.domain,
    )
    for name, value in {**_defaults(schema), **node.attributes}.items():
        if name in _understood(implementation, node.domain):
            proto.attribute.append(_attribute(name, value, schema))
    return proto


def unsupported_attribute(node: NodeView, implementation: OpClass) -> str | None:
    """The attribute of ``node`` that the class would ignore though it matters, in words; None when there is none."""
    if node.subgraphs:
        return f"nested graph in attribute {next(iter(node.subgraphs))}"
    schema = _schema(node.op_type, node.since_version, node.domain)
    defaults = _defaults(schema)
    for name, value in node.attributes.items():
        kind = _kind(name, schema)
        if kind in _NOT_SHOWN:
            return f"attribute {name} is not a number, string or tensor"
        if name in _INERT or name in _understood(implementation, node.domain):
            continue
        if name == "broadcast" and "axis" not in node.attributes:
            continue  # opset 1 to 6: without an axis it aligns trailing dimensions, as NumPy does
        if name not in defaults or value != defaults[name]:
            return f"onnx.reference ignores attribute {name}={value}"
    return None


_schema = functools.cache(defs.get_schema)


def _kind(name: str, schema: defs.OpSchema) -> int | None:
    """The ``AttributeProto`` type the schema gives an attribute."""
    kind: Any = schema.attributes[name].type if name in schema.attributes else None
    return None if kind is None else int(kind)


def _defaults(schema: defs.OpSchema) -> Mapping[str, Any]:
    found = {}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type:
            value = helper.get_attribute_value(attribute.default_value)
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


@functools.cache
def _understood(implementation: OpClass, domain: str) -> frozenset[str]:
    op_type, version = implementation.infer_name()  # type: ignore[no-untyped-call]
    schema = defs.get_schema(op_type, version, domain)
    return frozenset(schema.attributes) | frozenset(inspect.signature(implementation._run).parameters)


def _attribute(name: str, value: Any, schema: defs.OpSchema) -> AttributeProto:
    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, numpy_helper.from_array(value))
    if isinstance(value, list | tuple) and any(isinstance(item, np.ndarray) for item in value):
        return helper.make_attribute(name, [numpy_helper.from_array(item) for item in value])
    kind = _kind(name, schema)
    return helper.make_attribute(name, value, attr_type=kind)
