"""The gallery of onnxruntime's documentation as programs of ours, each run with both packages: what a program could have printed (results,
descriptions, exceptions with their texts) is the same."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from core_examples import CPU, ROWS, described, same_with_both, shipped, told
from core_graphs import model
from onnx import helper


def load_and_predict(ort: Any) -> Any:
    session = ort.InferenceSession(shipped(ort, "sigmoid.onnx"), providers=ort.get_available_providers())
    x = np.linspace(-3, 3, 60, dtype=np.float32).reshape(3, 4, 5)
    (name,), (result,) = session.get_inputs(), session.get_outputs()
    return described([name, result]), session.run([result.name], {name.name: x})


def metadata(ort: Any) -> Any:
    proto = onnx.load(shipped(ort, "logreg_iris.onnx"))
    shown = ort.InferenceSession(shipped(ort, "logreg_iris.onnx"), providers=CPU).get_modelmeta()
    assert (shown.domain, shown.producer_name) == (proto.domain, proto.producer_name)
    proto.doc_string, proto.domain, proto.model_version, proto.producer_name = "of irises", "test.flowers", 7, "garden"
    proto.graph.doc_string, proto.graph.name = "one regression", "flowers"
    helper.set_model_props(proto, {"trained": "today", "by": "nobody"})
    meta = ort.InferenceSession(proto.SerializeToString(), providers=CPU).get_modelmeta()
    return (
        [meta.custom_metadata_map, meta.description, meta.domain, meta.graph_name, meta.graph_description],
        [meta.producer_name, meta.version],
    )


def profiling(ort: Any) -> Any:
    proto = onnx.load(shipped(ort, "mul_1.onnx"))
    proto.ir_version = 6
    options = ort.SessionOptions()
    options.enable_profiling = True
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=CPU)
    results = session.run(None, {session.get_inputs()[0].name: ROWS})
    started = session.get_profiling_start_time_ns()
    file = session.end_profiling()
    events = json.loads(Path(file).read_text())
    nodes = [
        [e["name"], e["ph"], e["args"]["op_name"], e["args"]["provider"], e["args"]["output_type_shape"]]
        for e in events
        if e["cat"] == "Node"
    ]
    named = re.sub(r"\d", "0", file)
    plain = ort.InferenceSession(proto.SerializeToString(), providers=CPU)
    return results, nodes, named, started > 0, plain.end_profiling()


def backend(ort: Any) -> Any:
    module = importlib.import_module(f"{ort.__name__}.backend")
    name, device = shipped(ort, "logreg_iris.onnx"), ort.get_device()
    x = np.array([[-1, -2]], np.float32)
    seen = [
        device,
        module.supports_device(device),
        module.supports_device("TPU"),
        module.is_compatible(onnx.load(name)),
    ]
    for source in (onnx.load(name), name, Path(name).read_bytes()):
        prepared = module.prepare(source, device)
        seen.append(told(lambda prepared=prepared: prepared.run(x)))  # type: ignore[misc]
        seen.append(told(lambda prepared=prepared: prepared.run(ROWS)))  # type: ignore[misc]
    return [*seen, told(lambda: module.prepare(name, "TPU")), told(lambda: module.run(name, x, device))]


def common_errors(ort: Any) -> Any:
    session = ort.InferenceSession(shipped(ort, "logreg_iris.onnx"), providers=ort.get_available_providers())
    x, label = session.get_inputs()[0].name, session.get_outputs()[0].name
    arrays = [
        ROWS.astype(np.float64), np.array([1, 2, 3, 4]), np.float32([1, 2, 3, 4]), np.float32([[1, 2, 3, 4]]), ROWS,
        np.float32([1, 2, 3]), np.float32([[1, 2, 3]]), np.float32([[[1, 2], [3, 4]]]), np.float32([[[1, 2, 3]]]),
        np.float32([[[1, 2]], [[3, 4]]]), np.zeros((3, 0), np.float32),
    ]  # fmt: skip
    seen = [told(lambda a=a, o=o: session.run(o, {x: a})) for a in arrays for o in ([label], None)]  # type: ignore[misc]
    seen += [
        told(lambda: session.run(["misspelled"], {x: ROWS})),
        told(lambda: session.run([label], {"misspelled": ROWS})),
        told(lambda: session.run([label], {x: ROWS, "more": ROWS})),
        told(lambda: session.run([label], {})),
    ]
    return seen


def a_vectorizer_of_dictionaries(ort: Any) -> Any:
    """One observation at a time: a list of them is no dictionary."""
    node = helper.make_node(
        "DictVectorizer", ["float_input"], ["vector"], domain="ai.onnx.ml", int64_vocabulary=[1, 4, 7]
    )
    trees = helper.make_node("Scaler", ["vector"], ["variable"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    kind = helper.make_map_type_proto(onnx.TensorProto.INT64, helper.make_tensor_type_proto(1, []))
    graph = helper.make_graph(
        [node, trees],
        "pipeline",
        [helper.make_value_info("float_input", kind)],
        [helper.make_tensor_value_info("variable", 1, [1, 3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = ort.InferenceSession(proto.SerializeToString(), providers=CPU)
    rows = [{1: 0.5, 7: 2.0}, {4: -1.0}, {}, {9: 3.0}]
    name = session.get_inputs()[0].name
    return (
        described([*session.get_inputs(), *session.get_outputs()]),
        [told(lambda row=row: session.run(None, {name: row})) for row in rows],  # type: ignore[misc]
        told(lambda: session.run(None, {name: rows}))[:2],
        told(lambda: session.run(None, {name: {"a": 1.0}}))[:2],
    )


def a_forest_row_by_row(ort: Any) -> Any:
    """Two trees over two numbers for three classes and one row: more rows are refused."""
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "probabilities"], domain="ai.onnx.ml", post_transform="NONE",
        nodes_treeids=[0, 0, 0, 1, 1, 1], nodes_nodeids=[0, 1, 2] * 2, nodes_featureids=[0, 0, 0, 1, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * 2, nodes_values=[2.0, 0.0, 0.0, 5.0, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0] * 2, nodes_falsenodeids=[2, 0, 0] * 2,
        class_treeids=[0, 0, 1, 1], class_nodeids=[1, 2, 1, 2], class_ids=[0, 1, 2, 1], class_weights=[0.5] * 4,
        classlabels_int64s=[10, 20, 30],
    )  # fmt: skip
    zipped = helper.make_node(
        "ZipMap", ["probabilities"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[10, 20, 30]
    )
    maps = helper.make_sequence_type_proto(
        helper.make_map_type_proto(onnx.TensorProto.INT64, helper.make_tensor_type_proto(1, []))
    )
    graph = helper.make_graph(
        [node, zipped],
        "forest",
        [helper.make_tensor_value_info("x", 1, [1, 2])],
        [helper.make_tensor_value_info("label", 7, [1]), helper.make_value_info("maps", maps)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "forest.onnx")
    session = ort.InferenceSession("forest.onnx", providers=CPU)
    label, probabilities = (o.name for o in session.get_outputs())
    return (
        described(session.get_outputs()),
        [session.run([label], {"x": ROWS[i : i + 1]}) for i in range(3)],
        [session.run([probabilities], {"x": ROWS[i : i + 1]}) for i in range(3)],
        told(lambda: session.run(None, {"x": ROWS})),
    )


def an_image_of_other_sizes(ort: Any) -> Any:
    """Channels last, as Keras hands models over."""
    source = model(
        """
        g (float[N, 8, 8, 3] image) => (float[N, 4] scores) <int64[2] axes = {2, 3}, int64[4] shape = {4, 3, 3, 3}> {
            t = Transpose <perm = [0, 3, 1, 2]> (image)
            w = ConstantOfShape <value = float[1] {0.125}> (shape)
            c = Conv <strides = [2, 2]> (t, w)
            r = Relu (c)
            m = ReduceMean <keepdims = 0> (r, axes)
            scores = Softmax <axis = 1> (m)
        }"""
    )
    session = ort.InferenceSession(source, providers=CPU)
    image = np.random.default_rng(0).random((1, 8, 8, 3), np.float32)
    bad = [
        image[0],
        image[:, :7],
        image.astype(np.float64),
        (image * 255).astype(np.uint8),
        image.transpose(0, 3, 1, 2),
    ]
    return (
        described(session.get_inputs()),
        session.run(None, {"image": image}),
        session.run(None, {"image": image[:, ::-1]}),
        [told(lambda x=x: session.run(None, {"image": x})) for x in bad],  # type: ignore[misc]
    )


EXAMPLES = [
    load_and_predict,
    metadata,
    profiling,
    backend,
    common_errors,
    a_vectorizer_of_dictionaries,
    a_forest_row_by_row,
    an_image_of_other_sizes,
]


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda program: program.__name__)
def test_an_example_of_the_gallery(program: Any, tmp_path: Path) -> None:
    same_with_both(program, tmp_path)
