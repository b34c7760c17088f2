"""The helpers that providers use in get_capability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxplug.contract import NodeView, convex_groups, prefer_host
from onnxplug.graph import Graph, Schemas, build_graph
from onnxplug.graph.infer import infer_graph
from onnxplug.load import load_model


def graph_of(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[str]) -> Graph:
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    for result in results:
        result.ClearField("type")
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, results), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )
    graph = build_graph(load_model(model.SerializeToString()), Schemas())
    infer_graph(graph)
    return graph


@st.composite
def dags(draw: st.DrawFn) -> tuple[Graph, frozenset[str]]:
    """A random graph of Sums, and the names of the nodes a provider supports."""
    count = draw(st.integers(1, 12))
    names = ["x"]
    nodes = []
    for index in range(count):
        given_inputs = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        nodes.append(helper.make_node("Sum", given_inputs, [f"v{index}"], name=f"n{index}"))
        names.append(f"v{index}")
    supported = draw(st.frozensets(st.sampled_from([n.name for n in nodes])))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    return graph_of(nodes, [x], [f"v{index}" for index in range(count)]), supported


@settings(max_examples=200, deadline=None)
@given(dags())
def test_groups_cover_supported_nodes_and_stay_acyclic_when_contracted(case: tuple[Graph, frozenset[str]]) -> None:
    graph, supported = case
    groups = convex_groups(graph, lambda node: node.name in supported)
    grouped = [node.name for group in groups for node in group]
    assert sorted(grouped) == sorted(supported)
    unit = {node.name: index for index, group in enumerate(groups) for node in group}
    edges: dict[object, set[object]] = {}
    for node in graph.nodes:
        for value in node.reads:
            if value.producer is not None:
                source, target = (unit.get(n.name, n.name) for n in (value.producer, node))
                if source != target:
                    edges.setdefault(source, set()).add(target)
    assert not has_cycle(edges)


def has_cycle(edges: dict[object, set[object]]) -> bool:
    left = {node for pair in edges.items() for node in (pair[0], *pair[1])}
    while True:
        ends = {node for node in left if not edges.get(node, set()) & left}
        if not ends:
            return bool(left)
        left -= ends


def test_a_chain_is_one_group() -> None:
    nodes = [helper.make_node("Relu", ["x" if i == 0 else f"v{i - 1}"], [f"v{i}"]) for i in range(5)]
    graph = graph_of(nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])], ["v4"])
    assert [len(group) for group in convex_groups(graph, lambda node: True)] == [5]


def test_shape_computation_is_left_to_the_host() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "i"], ["d"], name="gather"),
        helper.make_node("Expand", ["x", "s"], ["y"], name="expand"),
        helper.make_node("Relu", ["y"], ["z"], name="relu"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    index = helper.make_node("Constant", [], ["i"], value_int=0)
    graph = graph_of([index, *nodes], [x], ["z", "d"])
    index_value = graph.value("i")
    index_value.constant = np.array(0)
    chosen: list[NodeView] = prefer_host(graph)
    assert [node.name for node in chosen] == ["shape", "gather"]


def in_float(*more: onnx.NodeProto, outputs: Sequence[str] = ("y",)) -> list[str]:
    """The names of host's nodes where padding is computed in floating point, as TensorFlow's "same" padding is written by torch,
    and scales of a Resize as well."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT, name="to_float"),
        helper.make_node("Div", ["f", "two"], ["h"], name="half"),
        helper.make_node("Ceil", ["h"], ["u"], name="up"),
        helper.make_node("Cast", ["u"], ["p"], to=TensorProto.INT64, name="to_int"),
        helper.make_node("Concat", ["p", "p"], ["pads"], axis=0, name="pads"),
        helper.make_node("Pad", ["x", "pads"], ["padded"], name="pad"),
        helper.make_node("Div", ["two", "f"], ["scales"], name="scales"),
        helper.make_node("Resize", ["padded", "", "scales"], ["y"], name="resize"),
        *more,
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    two = helper.make_node("Constant", [], ["two"], value_float=2.0)
    graph = graph_of([two, *nodes], [x], list(outputs))
    graph.value("two").constant = np.float32(2.0)
    return [node.name for node in prefer_host(graph)]


def test_shapes_computed_in_floating_point_are_left_to_the_host() -> None:
    assert in_float() == ["shape", "to_float", "half", "up", "to_int", "pads", "scales"]


def test_floating_point_that_is_data_as_well_is_not() -> None:
    ends = [
        helper.make_node("Mul", ["x", "h"], ["z"], name="mul"),
        helper.make_node("Mul", ["z", "scales"], ["w"], name="again"),
    ]
    assert in_float(*ends, outputs=("y", "w")) == ["shape"]
    assert in_float(outputs=("y", "u")) == ["shape"]
    assert in_float(outputs=("y", "scales")) == ["shape"]
