"""Whether a model of one node is one that the ONNX specification allows."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper

from onnxplug_testkit.kernels.cells import schemas


def is_legal(made: onnx.ModelProto, schema: Any = None) -> bool:
    """Whether onnx's own checker and inference accept a one-node model and agree on its outputs' types; ``schema``: the node's, when
    onnx does not have it.

    The checker refuses deprecated operators whatever the version; inference refuses types that a function body was not written for
    (MeanVarianceNormalization's is for float), which the operator has all the same.
    """
    node, version = made.graph.node[0], made.opset_import[0].version
    known = schemas().get((node.domain, node.op_type, version))
    try:
        if known is None:
            return schema is not None and _agrees(made, schema)
        if not known.deprecated:
            onnx.checker.check_node(node, _context(made))
        try:
            onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
        except onnx.shape_inference.InferenceError:
            if not (known.has_function or known.has_context_dependent_function):
                raise
            return _agrees(made, known)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, TypeError, LookupError):
        return False
    return True


def _agrees(made: onnx.ModelProto, schema: Any) -> bool:
    """Whether a schema that onnx does not have infers the output types declared."""
    types = {v.name: v.type for v in made.graph.input}
    data = {t.name: t for t in made.graph.initializer}
    types |= {name: helper.make_tensor_type_proto(t.data_type, t.dims) for name, t in data.items()}
    node = onnx.NodeProto()
    node.CopyFrom(made.graph.node[0])
    for index, name in enumerate(node.output):
        node.output[index] = name or f"omitted{index}"
    found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=list(made.opset_import))
    declared = {v.name: v.type.tensor_type.elem_type for v in made.graph.output}
    return all(found[n].tensor_type.elem_type == code for n, code in declared.items() if n in found)


def _context(made: onnx.ModelProto) -> Any:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = made.ir_version
    context.opset_imports = {o.domain: o.version for o in made.opset_import}
    return context
