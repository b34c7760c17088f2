"""What a session writes into an optimized model of products and imports, as onnxruntime does: tools go on with such models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from core_passes import feeds_of
from onnx import parser

ROW, WIDE = "float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}", "float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}"
SQUARE = f"{WIDE}, float[3] b = {{1, 2, 3}}"
MODELS = [
    (ROW, "x = MatMul(a, w) y = Add(x, b)", ["Gemm 00"]),
    ("float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[1, 2] b = {1, 2}", "x = MatMul(a, w) y = Add(b, x)", ["Gemm 00"]),
    ("float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[3, 1] b = {1, 2, 3}", "x = MatMul(a, w) y = Add(b, x)", ["Gemm 00"]),
    ("float[3, 2] w = {1, 2, 3, 4, 5, 6}, float b = {1}", "x = MatMul(a, w) y = Add(x, b)", ["MatMul", "Add"]),
    ("float[3, 1] w = {1, 2, 3}, float[2] b = {1, 2}", "x = MatMul(a, w) y = Add(x, b)", ["MatMul", "Add"]),
    (WIDE, "x = MatMul(a, w) z = MatMul(w, a) y = Add(x, z)", ["MatMul", "Gemm 00"]),
    (ROW, "x = MatMul(a, w) y = Add(x, x)", ["MatMul", "Add"]),
    (ROW, "x = MatMul(a, w) u = Add(x, b) y = Mul(u, x)", ["MatMul", "Add", "Mul"]),
    (SQUARE, "t = Transpose<perm = [1, 0]>(a) x = MatMul(t, w) y = Add(x, b)", ["Gemm 10"]),
    (WIDE, "t = Transpose<perm = [1, 0]>(a) y = Gemm<alpha = 2.0, transA = 1>(w, t)", ["Gemm 11"]),
    (SQUARE, "t = Transpose<perm = [1, 0]>(a) u = Gemm(t, w, b) y = Add(u, t)", ["Transpose", "Gemm 00", "Add"]),
    (WIDE, "x = Gemm<transA = 1>(a, w) y = Transpose<perm = [1, 0]>(x)", ["Gemm 10"]),
    (SQUARE, "x = Gemm(a, w, b) y = Transpose<perm = [1, 0]>(x)", ["Gemm 00", "Transpose"]),
    (ROW, "x = Gemm(a, w) y = Sum(x, b)", ["Gemm 00"]),
    (ROW, "x = Gemm(a, w, b) y = Sum(x, b)", ["Gemm 00", "Sum"]),
]


def model_of(nodes: str, weights: str) -> bytes:
    """A model of one 3x3 matrix."""
    proto = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 21]> g (float[3, 3] a) => (float y) <{weights}> {{ {nodes} }}'
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto.SerializeToString()


def written(ort: Any, model: bytes, path: Path, **keywords: Any) -> tuple[onnx.ModelProto, Any]:
    """The optimized model and the session that wrote it."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path / "written.onnx")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = ort.InferenceSession(model, options, ["CPUExecutionProvider"], **keywords)
    return onnx.load(options.optimized_model_filepath), session


def told(node: onnx.NodeProto) -> str:
    """Its operator, and which operands a Gemm turns."""
    flags = {a.name: a.i for a in node.attribute}
    return f"Gemm {flags.get('transA', 0)}{flags.get('transB', 0)}" if node.op_type == "Gemm" else str(node.op_type)


@pytest.mark.parametrize(("weights", "nodes", "left"), MODELS)
def test_products_of_matrices_are_written_as_gemms(
    ort: Any, weights: str, nodes: str, left: list[str], tmp_path: Path
) -> None:
    model = model_of(nodes, weights)
    proto, session = written(ort, model, tmp_path)
    assert [told(node) for node in proto.graph.node] == left
    plain = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    again = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for run in (session.run, again.run):
        np.testing.assert_allclose(run(None, feeds_of(model))[0], plain.run(None, feeds_of(model))[0], rtol=1e-6)


def test_a_rewriting_of_products_is_disabled_by_its_name(ort: Any, tmp_path: Path) -> None:
    model = model_of("x = MatMul(a, w) y = Add(x, b)", ROW)
    proto, _ = written(ort, model, tmp_path, disabled_optimizers=["MatMulAddFusion"])
    assert [node.op_type for node in proto.graph.node] == ["MatMul", "Add"]


def test_products_of_bodies_are_written_so_too(ort: Any, tmp_path: Path) -> None:
    nodes = """k = ReduceMax<keepdims = 0>(a) c = Cast<to = 9>(k) y = If (c)
        <then_branch = t () => (float o) { x = MatMul(a, w) o = Add(x, b) },
         else_branch = e () => (float p) { p = MatMul(a, w) }>"""
    proto, _ = written(ort, model_of(nodes, ROW), tmp_path)
    bodies = {a.name: [n.op_type for n in a.g.node] for a in proto.graph.node[-1].attribute}
    assert bodies == {"then_branch": ["Gemm"], "else_branch": ["MatMul"]}


def test_a_written_model_imports_what_tools_put_into_it(ort: Any, tmp_path: Path) -> None:
    proto = onnx.ModelProto.FromString(model_of("y = com.microsoft.Gelu(a)", ""))
    proto.opset_import[0].domain, proto.opset_import[0].version = "com.microsoft", 1
    imports = {each.domain for each in written(ort, proto.SerializeToString(), tmp_path)[0].opset_import}
    assert {"", "com.microsoft"} <= imports
    plain = written(ort, model_of("y = Neg(a)", ""), tmp_path)[0].opset_import
    assert {("", 21), ("com.microsoft", 1)} <= {(each.domain, each.version) for each in plain}
