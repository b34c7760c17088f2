"""Every single-node case of the ONNX backend data whose operator version is in the catalogue, called as a provider would call it."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.runner import Runner

from onnxplug_kernels import find

# Bernoulli has no fixed meaning without a seed, and the data's seedless outputs cannot be reproduced.
RANDOM = ("test_bernoulli",)


def value(proto: Any) -> Any:
    if isinstance(proto, onnx.TensorProto):
        return numpy_helper.to_array(proto)
    if isinstance(proto, onnx.SequenceProto):
        return numpy_helper.to_list(proto)
    if isinstance(proto, onnx.OptionalProto):
        return numpy_helper.to_optional(proto)
    return proto


def attribute(proto: onnx.AttributeProto) -> Any:
    got = helper.get_attribute_value(proto)
    if proto.type == onnx.AttributeProto.STRING:
        return got.decode()
    if proto.type == onnx.AttributeProto.STRINGS:
        return [s.decode() for s in got]
    if proto.type == onnx.AttributeProto.TENSOR:
        return numpy_helper.to_array(got)
    return list(got) if proto.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else got


def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return [c for c in found if len(c.model.graph.node) == 1 and not c.name.startswith(RANDOM)]


def entry_for(model: onnx.ModelProto) -> Any:
    node = model.graph.node[0]
    versions = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
    try:
        schema = defs.get_schema(node.op_type, versions[node.domain], node.domain)
    except (defs.SchemaError, KeyError):
        return None
    return find(node.domain, node.op_type, schema.since_version)


COVERED = [c for c in cases() if entry_for(c.model) is not None]


@pytest.mark.parametrize("case", COVERED, ids=lambda c: c.name)
def test_backend_case(case: Any) -> None:
    node = case.model.graph.node[0]
    entry = entry_for(case.model)
    attributes = {a.name: attribute(a) for a in node.attribute}
    if "n_outputs" in inspect.signature(entry.function).parameters:
        attributes["n_outputs"] = len(node.output)
    for data_inputs, data_outputs in case.data_sets:
        feeds = dict(zip([i.name for i in case.model.graph.input], map(value, data_inputs), strict=False))
        before = {k: np.array(v, copy=True) for k, v in feeds.items() if isinstance(v, np.ndarray)}
        got = entry.function(np, *[feeds.get(name) if name else None for name in node.input], **attributes)
        got = list(got) if isinstance(got, tuple) else [got]
        wanted = [o for o in node.output]
        outputs = [g for name, g in zip(wanted, got, strict=False) if name]
        Runner.assert_similar_outputs([value(o) for o in data_outputs], outputs, case.rtol, case.atol)
        for name, copy in before.items():
            assert repr(feeds[name].tolist()) == repr(copy.tolist()), f"input {name} was written to"
