"""Every shape rule says what onnx's inference says, for the backend's models and for random operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.backend.test.case.node import collect_testcases

from onnxplug.contract.types import TensorType
from onnxplug.graph.build import build_graph
from onnxplug.graph.infer import infer_graph, output_types
from onnxplug.graph.schemas import Schemas
from onnxplug.load.model import load_model
from onnxplug.plan.layers import output_shapes  # which enters the rules of layers
from onnxplug.plan.rules import _rules

CASES = {case.name: case for case in collect_testcases(None)}


def compare(node: Any, types: Any, constants: Any) -> bool:
    """Whether there was something to compare; it is equal then."""
    shapes = [t.static_shape if isinstance(t, TensorType) else None for t in types]
    if any(s is None and v is not None for s, v in zip(shapes, node.inputs, strict=True)):
        return False
    found = output_shapes(node, shapes, constants)
    if found is None:
        return False
    known = {v.name: c for v, c in zip(node.inputs, constants, strict=True) if v is not None and c is not None}
    inferred = output_types(node, types, known)
    wanted = [t.static_shape if isinstance(t, TensorType) else None for t in inferred]
    assert all(w is None or w == f for w, f in zip(wanted, found, strict=True)), (node.op_type, shapes, found, wanted)
    return any(w is not None for w in wanted)


def graph_of(model: Any) -> Any:
    graph = build_graph(load_model(model.SerializeToString(), ""), Schemas(lambda: ()), {})
    infer_graph(graph)
    return graph


def test_the_backends_models() -> None:
    compared: dict[str, int] = {}
    for case in CASES.values():
        try:
            graph = graph_of(case.model)
        except Exception:  # models that the load refuses have tests of their own
            continue
        feeds = dict(zip([v.name for v in graph.inputs], case.data_sets[0][0], strict=False))
        for node in graph.nodes:
            constants = [
                None if v is None else v.constant if v.constant is not None else _small(feeds.get(v.name))
                for v in node.inputs
            ]
            if compare(node, [None if v is None else v.type for v in node.inputs], constants):
                compared[node.op_type] = compared.get(node.op_type, 0) + 1
    assert len(compared) > 80, sorted({op_type for _, op_type in _rules} - set(compared))


def _small(value: Any) -> np.ndarray | None:
    return value if isinstance(value, np.ndarray) and value.dtype == np.int64 and value.size < 64 else None


DIMS = st.lists(st.integers(0, 4), min_size=1, max_size=4)
INTS = st.lists(st.integers(-6, 6), min_size=1, max_size=4)


def one_node(op_type: str, shapes: list[list[int]], ints: list[list[int]], outputs: int = 1, **attributes: Any) -> Any:
    names = [f"x{i}" for i in range(len(shapes))]
    given_values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=True)]
    scalar = op_type == "Range"
    constants = [
        helper.make_tensor(f"c{i}", TensorProto.INT64, [] if scalar else [len(v)], v) for i, v in enumerate(ints)
    ]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, [*names, *(c.name for c in constants)], made, **attributes)
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in made]
    graph = helper.make_graph([node], "g", given_values, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    "op_type",
    [
        "Reshape",
        "Slice",
        "Split",
        "Expand",
        "Squeeze",
        "Unsqueeze",
        "ReduceSum",
        "Concat",
        "Add",
        "MatMul",
        "Gather",
        "GatherND",
        "Range",
        "ConstantOfShape",
        "Transpose",
        "Flatten",
    ],
)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_random_operands(op_type: str, data: Any) -> None:
    x = data.draw(DIMS)
    ints: list[list[int]] = []
    shapes, attributes, outputs = [x], {}, 1
    if op_type in ("Add", "MatMul", "Concat", "Gather"):
        shapes.append(data.draw(st.permutations(x) | DIMS | st.just(x)))
    if op_type in ("Concat", "Gather", "Split", "Flatten"):
        attributes["axis"] = data.draw(st.integers(-5, 5))
    if op_type in ("Reshape", "Expand", "Squeeze", "Unsqueeze", "ReduceSum", "Split"):
        ints.append(data.draw(INTS | st.permutations(x)))
    if op_type == "ConstantOfShape":
        shapes, ints = [], [data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))]
    if op_type == "GatherND":
        depth = data.draw(st.integers(1, len(x)))
        ints = [[data.draw(st.integers(0, max(0, n - 1))) for n in x[:depth]]]
    if op_type == "Range":
        shapes, ints = [], [[data.draw(st.integers(-6, 6))] for _ in range(3)]
    if op_type == "Slice":
        count = data.draw(st.integers(1, len(x)))
        vector = st.lists(st.integers(-6, 6), min_size=count, max_size=count)
        ints = [
            data.draw(vector),
            data.draw(vector),
            data.draw(st.permutations(range(len(x))))[:count],
            data.draw(vector),
        ]
    if op_type == "Split":
        outputs = len(ints[0])
    if op_type == "Transpose":
        attributes["perm"] = data.draw(st.permutations(range(len(x))))
    try:
        graph = graph_of(one_node(op_type, shapes, ints, outputs, **attributes))
    except Exception:  # illegal nodes are refused by the load
        return
    (node,) = graph.nodes
    compare(node, [v.type for v in node.inputs], [v.constant for v in node.inputs])


LAYERS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "TopK", "ArgMax", "Resize", "LSTM")


@pytest.mark.parametrize("op_type", LAYERS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_random_layers(op_type: str, data: Any) -> None:
    rank = data.draw(st.integers(1, 2))
    x = [2, 2, *data.draw(st.lists(st.integers(1, 9), min_size=rank, max_size=rank))]
    shapes, attributes, outputs = [x], {}, 1

    def each(low: int, high: int, count: int = rank) -> list[int]:
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    if op_type in ("Conv", "ConvTranspose", "MaxPool", "AveragePool"):
        kernel = each(1, 4)
        if op_type.startswith("Conv"):
            shapes.append([2, 3, *kernel] if op_type == "ConvTranspose" else [4, 2, *kernel])
        else:
            attributes["kernel_shape"] = kernel
        for name, low, high, count in (
            ("strides", 1, 3, rank), ("dilations", 1, 2, rank), ("pads", 0, 2, 2 * rank),
        ):  # fmt: skip
            if data.draw(st.booleans()):
                attributes[name] = each(low, high, count)
        auto = data.draw(st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
        if auto != "NOTSET" and "pads" not in attributes:
            attributes["auto_pad"] = auto
        if op_type == "ConvTranspose":
            attributes["group"] = 1
    ints: list[list[int]] = []
    if op_type == "TopK":
        ints, outputs, attributes["axis"] = [[data.draw(st.integers(0, 3))]], 2, data.draw(st.integers(-4, 4))
    if op_type == "ArgMax":
        attributes |= {"axis": data.draw(st.integers(-4, 4)), "keepdims": data.draw(st.integers(0, 1))}
    if op_type == "LSTM":
        shapes, attributes, outputs = [[5, 2, 3], [1, 16, 3], [1, 16, 4]], {"hidden_size": 4}, 3
    model = one_node(op_type, shapes, ints, outputs, **attributes)
    if op_type == "Resize":
        scales = data.draw(st.lists(st.floats(0.25, 4, width=32), min_size=len(x), max_size=len(x)))
        model.graph.initializer.append(helper.make_tensor("scales", TensorProto.FLOAT, [len(x)], scales))
        model.graph.node[0].input.extend(["", "scales"])
    try:
        graph = graph_of(model)
    except Exception:  # illegal nodes are refused by the load
        return
    (node,) = graph.nodes
    compare(node, [v and v.type for v in node.inputs], [v and v.constant for v in node.inputs])


@given(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3))
@settings(max_examples=100, deadline=None)
def test_ranges_of_fractions(numbers: list[float]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Range", ["a", "b", "c"], ["y"])], "g", [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor(name, TensorProto.FLOAT, [], [n]) for name, n in zip("abc", numbers, strict=True)],
    )  # fmt: skip
    try:
        (node,) = graph_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)).nodes
    except Exception:  # a step of 0
        return
    compare(node, [v.type for v in node.inputs], [v.constant for v in node.inputs])
