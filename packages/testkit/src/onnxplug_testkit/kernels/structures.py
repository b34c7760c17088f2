"""Structures: single nodes with operands, from ONNX's backend data and the kit's own list.

A structure fixes attributes, shapes and which operands are there; versions, types and values are changed to make tests of it."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from onnxplug.graph.protos import type_from_proto
from onnxplug_testkit.kernels.cells import Key, schemas
from onnxplug_testkit.kernels.own import own_nodes
from onnxplug_testkit.kernels.own.node import FOREVER

_FLOATS = frozenset({"float", "double", "float16", "bfloat16"})
_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_SMALL_BIAS = (
    "default_no_bias",
    "default_scalar_bias",
    "default_single_elem_vector_bias",
    "default_vector_bias",
    "default_zero_bias",
)
_TURNED = ("alpha", "beta", "all_attributes", "transposeA", "transposeB")
NEEDS_VERSION = {
    "onehot_out_of_range_indices": 11, "onehot_negative_indices": 11, "prelu_broadcast": 7, "squeeze_negative_axes": 11,
    **{f"own_batchnormalization_{name}": 7 for name in ("7", "9", "15_images1", "15_images2", "15_images3", "15_rows")},
    "group_normalization_example": 21, "group_normalization_epsilon": 21, **{f"gemm_{name}": 7 for name in (*_SMALL_BIAS, *_TURNED)},
    **{f"own_gemm_13_third_{name}": 7 for name in ("scalar", "one", "column", "ones")}, "own_gemm_13_no_terms": 7,
    **{f"own_pow_13_below_zero_{name}": 7 for name in ("square", "whole")},
}  # fmt: skip
"""Structures that older versions of their operator refuse for their values, which no schema tells."""
_INTERPOLATES = {"GridSample": _FLOATS, "Resize": _FLOATS | _INTEGERS, "Upsample": _FLOATS | _INTEGERS}
"""Operators that compute between elements unless their mode is nearest, and of which types. GridSample's text rounds no integers."""
_NESTED = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


@dataclass(frozen=True, eq=False)
class Structure:
    """One node. ``inputs`` and ``outputs`` follow the node's operands, None for an omitted one; ``types`` are theirs as
    strings, inputs then outputs. ``rtol`` and ``atol`` are what ONNX allows its expected ``outputs``; of the kit's own structures
    (``known`` false) no outputs are known, only which there are. ``until``, ``elements``, ``tied``: see ``OwnNode``."""

    name: str
    key: Key
    attributes: Mapping[str, AttributeProto]
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    input_types: Sequence[str]
    output_types: Sequence[str]
    rtol: float
    atol: float
    known: bool = True
    until: int = FOREVER
    elements: frozenset[str] = frozenset()
    tied: bool = False


@functools.cache
def structures() -> Mapping[tuple[str, str], Sequence[Structure]]:
    """The structures of each operator (domain, name), in the order of the data."""
    found: dict[tuple[str, str], list[Structure]] = defaultdict(list)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    for case in collected:
        made = _structure(case)
        if made is not None:
            found[made.key[:2]].append(made)
    for own in own_nodes():
        key = (own.domain, own.op_type, own.version)
        made = Structure(
            f"own_{own.name}", key, own.attributes, own.inputs, [text or None for text in own.output_types], own.input_types,
            own.output_types, 0, 0, False, own.until, own.elements, own.tied,
        )  # fmt: skip
        found[key[:2]].append(made)
    return dict(found)


def _structure(case: Any) -> Structure | None:
    graph = case.model.graph
    if len(graph.node) != 1 or not case.data_sets or graph.initializer:
        return None
    node = graph.node[0]
    if any(a.type in _NESTED for a in node.attribute):
        return None
    opsets = {_domain(o.domain): o.version for o in case.model.opset_import}
    domain = _domain(node.domain)
    versions = [v for d, n, v in schemas() if (d, n) == (domain, node.op_type) and v <= opsets[domain]]
    if not versions:
        return None
    given, wanted = case.data_sets[0]
    values = {info.name: value for info, value in zip(graph.input, given, strict=True)}
    results = {info.name: value for info, value in zip(graph.output, wanted, strict=True)}
    types = {info.name: str(type_from_proto(info.type)) for info in (*graph.input, *graph.output)}
    if any(name and name not in values for name in node.input):
        return None
    return Structure(
        case.name.removeprefix("test_"),
        (domain, node.op_type, max(versions)),
        {a.name: a for a in node.attribute},
        [_value(values[name]) if name else None for name in node.input],
        [_value(results[name]) if name in results else None for name in node.output],
        [types.get(name, "") for name in node.input],
        [types.get(name, "") for name in node.output],
        case.rtol,
        case.atol,
        elements=_elements(node),
    )


def _elements(node: onnx.NodeProto) -> frozenset[str]:
    """The element types a case of the backend data may be given; all when empty."""
    told = {a.name: a.s.decode() for a in node.attribute if a.type == AttributeProto.STRING}
    if told.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return _FLOATS  # its coordinates come from rois in single precision, and integers are rounded where they fall
    mode = told.get("mode", "linear" if node.op_type == "GridSample" else "nearest")
    return frozenset() if mode == "nearest" else _INTERPOLATES.get(node.op_type, frozenset())


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _value(proto: Any) -> Any:
    if isinstance(proto, onnx.TensorProto):
        return numpy_helper.to_array(proto)
    if isinstance(proto, onnx.SequenceProto):
        return numpy_helper.to_list(proto)
    if isinstance(proto, onnx.OptionalProto):
        return numpy_helper.to_optional(proto)
    return np.asarray(proto) if isinstance(proto, np.generic) else proto
