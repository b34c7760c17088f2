"""Building graphs: what is refused and how, names, initializers, nested graphs, export."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from core_functions import FUNCTIONS, calling, with_functions
from core_graphs import expected, model, same
from core_protos import ONE, X, Y, graph, node, proto, session, twice
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxplug.contract.errors import STATUS_ERRORS, Fail, InvalidArgument, InvalidGraph
from onnxplug.graph.export import graph_proto

# ---- structure

BAD_NODES = [
    ("unknown operator", [node("Nope", ["x"], ["y"])], InvalidGraph, "No Op registered for Nope with domain_version of 21"),
    ("operator of a later opset", [node("Swish", ["x"], ["y"])], InvalidGraph, "No Op registered for Swish"),
    ("domain not imported", [node("Relu", ["x"], ["y"], domain="q")], InvalidGraph, "No opset import for domain 'q'"),
    ("too many inputs", [node("Relu", ["x", "x"], ["y"])], InvalidGraph, r"has input size 2 not in range \[min=1, max=1\]"),
    ("too few inputs", [node("Add", ["x"], ["y"])], InvalidGraph, r"has input size 1 not in range \[min=2, max=2\]"),
    ("too many outputs", [node("Relu", ["x"], ["y", "z"])], InvalidGraph, r"has output size 2 not in range"),
    ("omitted input", [node("Add", ["", "x"], ["y"])], InvalidGraph, "input 0 is marked single but has an empty string"),
    ("unknown attribute", [node("Relu", ["x"], ["y"], axis=1)], InvalidGraph, "Unrecognized attribute: axis for operator Relu"),
    ("missing attribute", [node("Cast", ["x"], ["y"])], InvalidGraph, "Required attribute 'to' is missing"),
    ("mistyped attribute", [node("Softmax", ["x"], ["y"], axis="a")], InvalidGraph, "Mismatched attribute type in 'Softmax_0 : axis'"),
    ("attribute given twice", [twice(node("Softmax", ["x"], ["y"], axis=0))], InvalidGraph, "Attribute 'axis' appeared multiple times"),
    ("constant without a value", [node("Constant", [], ["y"])], Fail, "One and only one of its attributes must be specified"),
    ("too few parts", [node("Split", ["x"], ["y", "z"], num_outputs=1)], Fail, "num_outputs is 1, the node has 2 outputs"),
    ("dangling input", [node("Relu", ["q"], ["y"])], InvalidArgument, "Node input 'q' is not a graph input, initializer, or output"),
    ("output not made", [node("Relu", ["x"], ["z"])], Fail, r"Graph output \(y\) does not exist in the graph"),
    ("made twice", [node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])], Fail, r"Duplicate definition of name \(y\)"),
    ("input made again", [node("Relu", ["x"], ["x"])], Fail, r"Duplicate definition of name \(x\)"),
    ("cycle", [node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["x"], ["y"])], Fail, "not acyclic"),
    ("loop of one", [node("Add", ["x", "y"], ["y"])], Fail, "not acyclic"),
    ("forbidden type", [node("Not", ["x"], ["y"])], InvalidGraph, r"Type 'tensor\(float\)' of input parameter \(x\)"),
    ("two types", [node("Cast", ["x"], ["i"], to=7), node("Add", ["x", "i"], ["y"])], Fail, r"Type parameter \(T\) of Optype \(Add\)"),
    ("declared type", [node("Cast", ["x"], ["y"], to=7)], Fail, r"Type \(tensor\(float\)\) of output arg \(y\) of node \(Cast_0\)"),
    ("shapes", [node("Reshape", ["x", "x"], ["y"])], InvalidGraph, r"input parameter \(x\) of operator \(Reshape\)"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "error", "text"), [pytest.param(*case[1:], id=case[0]) for case in BAD_NODES])
def test_nodes_that_are_refused(nodes: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        session(proto(nodes))


@pytest.mark.parametrize(
    "nodes", [pytest.param(case[1], id=case[0]) for case in BAD_NODES if case[0] != "too few parts"]
)
def test_onnxruntime_refuses_them_with_the_same_class(nodes: Any) -> None:
    """But for Split, over which it dies."""
    theirs = pytest.importorskip("onnxruntime")
    theirs.set_default_logger_severity(4)
    with pytest.raises(STATUS_ERRORS) as mine:
        session(proto(nodes))
    with pytest.raises(Exception) as raised:
        theirs.InferenceSession(proto(nodes).SerializeToString(), providers=["CPUExecutionProvider"])
    assert type(raised.value).__name__ == type(mine.value).__name__


def test_a_constant_of_two_values() -> None:
    with pytest.raises(Fail, match="One and only one"):
        session(proto([node("Constant", [], ["y"], value_float=1.0, value_int=1)]))


def test_an_operator_nobody_has_names_the_providers() -> None:
    with pytest.raises(
        Fail,
        match=r"Fatal error: q:Relu\(-1\) is not a registered function/op.*CPUExecutionProvider: no kernel for q\.Relu",
    ):
        session(proto([node("Relu", ["x"], ["y"], domain="q")], opsets={"": 21, "q": 1}))


def test_inputs_that_are_refused() -> None:
    relu = [node("Relu", ["x"], ["y"])]
    with pytest.raises(Fail, match=r"Duplicate definition-site for \(x\)"):
        session(proto(relu, [X, X]))
    with pytest.raises(Fail, match=r"Model input \(x\) does not have type information"):
        session(proto(relu, [helper.make_empty_tensor_value_info("x")]))


def test_an_output_of_no_type() -> None:
    made = proto([node("Relu", ["x"], ["y"], domain="com.microsoft")], opsets={"": 21, "com.microsoft": 1})
    made.graph.output[0].ClearField("type")
    with pytest.raises(STATUS_ERRORS):
        session(made)


def test_nodes_may_come_in_any_order() -> None:
    nodes = [node("Add", ["a", "b"], ["y"]), node("Neg", ["b"], ["a"]), node("Relu", ["x"], ["b"])]
    made = proto(nodes)
    assert session(made).run(None, {"x": ONE})[0].tolist() == [0, 0]
    assert [n.op_type for n in graph(made).nodes] == ["Relu", "Neg", "Add"]


def test_a_chain_longer_than_pythons_stack() -> None:
    names = ["x", *(f"v{i}" for i in range(3000)), "y"]
    nodes = [node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    assert len(graph(proto(nodes[::-1])).nodes) == 3001


def test_outputs_of_every_kind() -> None:
    made = proto([node("Relu", ["x"], ["y"])], outputs=[Y, Y, X], initializer=None)
    assert [r.tolist() for r in session(made).run(None, {"x": ONE})] == [[1, 0], [1, 0], [1, -2]]
    weight = numpy_helper.from_array(ONE, "y")
    assert session(proto([], inputs=[], initializer=[weight])).run(None, {})[0].tolist() == [1, -2]


# ---- names


def test_names_are_given_and_made_unique() -> None:
    nodes = [
        node("Relu", ["x"], ["a"]), node("Relu", ["a"], ["b"]), node("Neg", ["b"], ["c"], name="Relu_1"),
        node("Neg", ["c"], ["d"], name="Relu_1"), node("Neg", ["d"], ["e"], name="a/b\\c"), node("Relu", ["e"], ["y"]),
    ]  # fmt: skip
    names = [n.name for n in graph(proto(nodes)).nodes]
    assert len(set(names)) == 6 and names[0] == "Relu_0" and names[1] == "Relu_1"
    assert session(proto(nodes)).run(None, {"x": ONE})[0].tolist() == [0, 0]


NESTED = model("""g (float[2] x, bool b) => (float[2] y) {
    y = If (b) <
        then_branch = t () => (a) { h = Neg(x) a = If (b) <then_branch = tt () => (h2) { h2 = Abs(h) },
                                                          else_branch = te () => (h3) { h3 = Neg(h) }> },
        else_branch = e () => (a) { h = Relu(x) a = Identity(h) }> }""")


def test_names_in_nested_graphs_are_paths() -> None:
    built = graph(NESTED)
    assert [n.name for n in built.walk()] == ["If_0", "If_0/Neg_0", "If_0/If_0", "If_0/If_0/Abs_0", "If_0/If_0/Neg_0",
                                              "If_0/Relu_0", "If_0/Identity_0"]  # fmt: skip
    values = [v.name for n in built.walk() for v in n.outputs if v is not None]
    assert len(set(values)) == len(values), "values of all graphs have names of their own"


def test_a_nested_name_shadows_an_outer_one() -> None:
    source = model("""g (float[2] x, bool b) => (float[2] y) {
        h = Neg(x)
        y = If (b) <then_branch = t () => (a) { h = Abs(x) a = Add(h, x) },
                    else_branch = e () => (a) { a = Add(h, x) }> }""")
    for b in (True, False):
        feed = {"x": ONE, "b": np.array(b)}
        assert session(source).run(None, feed)[0].tolist() == ([2, 0] if b else [0, 0])


def test_the_names_of_a_models_own_nodes_win() -> None:
    """A function's inner names cannot meet the names of the model."""
    made = with_functions("x: float[2]", "r = f.twice(x) y = Neg(r)", "twice (p) => (q) { h = Neg(p) q = Add(h, h) }")
    made.graph.node[0].name, made.graph.node[1].name = "call", "call/Neg_0"
    made.graph.node[0].output[0] = made.graph.node[1].input[0] = "call/h"
    explained = session(made)
    assert explained.run(None, {"x": ONE})[0].tolist() == [2, -4]
    assert len(explained.placement()) == 3


# ---- initializers


@pytest.mark.parametrize("version", [3, 4, 9])
def test_an_initializer_may_be_overridden_from_ir_4_on(version: int) -> None:
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])
    made = proto(
        [node("Add", ["x", "w"], ["y"])], [X, w], initializer=[numpy_helper.from_array(ONE, "w")], ir_version=version
    )
    mine = session(made)
    assert [i.name for i in mine.get_inputs()] == ["x"]
    assert [i.name for i in mine.get_overridable_initializers()] == (["w"] if version > 3 else [])
    assert mine.run(None, {"x": ONE})[0].tolist() == [2, -4]
    if version > 3:
        assert mine.run(None, {"x": ONE, "w": np.zeros(2, np.float32)})[0].tolist() == [1, -2]
        assert mine.run(None, {"x": ONE})[0].tolist() == [2, -4]
        with pytest.raises(InvalidArgument):
            mine.run(None, {"x": ONE, "w": np.zeros(3, np.float32)})
    else:
        with pytest.raises(InvalidArgument, match="Invalid input name: w"):
            mine.run(None, {"x": ONE, "w": np.zeros(2, np.float32)})


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ((TensorProto.INT64, [2]), r"Data in initializer 'w' has element type tensor\(float\) but usage"),
        ((TensorProto.FLOAT, [3]), "Shape of initializer w does not match"),
        ((TensorProto.FLOAT, [2, 1]), "Shape of initializer w does not match"),
    ],
)
def test_an_initializer_that_is_not_what_its_input_says(declared: Any, text: str) -> None:
    w = helper.make_tensor_value_info("w", *declared)
    made = proto([node("Add", ["x", "w"], ["y"])], [X, w], initializer=[numpy_helper.from_array(ONE, "w")])
    with pytest.raises(Fail, match=text):
        session(made)


def test_an_initializer_of_a_free_dimension() -> None:
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, ["N"])
    made = proto([node("Add", ["x", "w"], ["y"])], [X, w], initializer=[numpy_helper.from_array(ONE, "w")])
    assert session(made).run(None, {"x": ONE, "w": np.ones(1, np.float32)})[0].tolist() == [2, -1]


@pytest.mark.parametrize("large", [False, True])
def test_of_initializers_defined_twice_the_last_counts(large: bool, caplog: pytest.LogCaptureFixture) -> None:
    array = np.ones((100_000 if large else 1, 2), np.float32)  # bytes of large ones are read apart from the model
    weights = [numpy_helper.from_array(each, "w") for each in (array, 2 * array)]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, array.shape)
    made = session(proto([node("Add", ["x", "w"], ["y"])], outputs=[output], initializer=weights))
    assert np.array_equal(made.run(None, {"x": ONE})[0], 2 * array + ONE)
    assert caplog.text.count("Duplicate initializer (dense, sparse or ConstantNode): 'w'") == 1


def test_a_name_defined_twice() -> None:
    w = numpy_helper.from_array(ONE, "w")
    with pytest.raises(Fail, match=r"Duplicate definition of name \(w\)"):
        session(proto([node("Neg", ["x"], ["w"]), node("Add", ["x", "w"], ["y"])], initializer=[w]))


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_sparse_constants_have_their_own_type_whatever_an_output_declares(element: int) -> None:
    values = helper.make_tensor("v", TensorProto.FLOAT, [1], [5.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [1])
    constant = helper.make_node("Constant", [], ["s"], sparse_value=helper.make_sparse_tensor(values, indices, [3]))
    declared = helper.make_sparse_tensor_value_info("s", element, ["n"])
    made = helper.make_model(helper.make_graph([constant], "g", [], [declared]))
    made.opset_import[0].version, made.ir_version = 21, 10
    (s,) = session(made).run(None, {})
    assert (s.data_type(), s.dense_shape()) == ("sparse_tensor(float)", [3])
    assert (s.values().tolist(), s.get_coo_data().indices().tolist()) == ([5], [1])


@pytest.mark.parametrize("as_input", [False, True])
def test_sparse_initializers_are_dense_constants(as_input: bool) -> None:
    values, indices = numpy_helper.from_array(ONE[:1], "w"), numpy_helper.from_array(np.array([1]), "i")
    inputs = [X, helper.make_sparse_tensor_value_info("w", TensorProto.FLOAT, [2])] if as_input else [X]
    made = proto([node("Add", ["x", "w"], ["y"])], inputs)
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
    assert session(made).run(None, {"x": ONE})[0].tolist() == [1, -1]


# ---- nested graphs


def test_captures_through_two_levels() -> None:
    built = graph(NESTED)
    outer = built.nodes[0]
    assert {v.name for v in outer.captures} == {"x", "b"}
    assert [v.consumers for v in built.inputs] == [[outer], [outer]], "a nested reader counts through its owner"
    inner = outer.subgraphs["then_branch"].nodes[1]
    assert {v.name for v in inner.captures} == {"h"} and inner.subgraphs["then_branch"].parent is outer.subgraphs[
        "then_branch"
    ]
    for b in (True, False):
        feeds = {"x": ONE, "b": np.array(b)}
        same(session(NESTED).run(None, feeds), expected(NESTED, feeds))


def test_a_capture_may_be_made_later_in_the_list() -> None:
    nodes = [
        node("If", ["b"], ["y"],
             then_branch=helper.make_graph([node("Neg", ["h"], ["a"])], "t", [], [helper.make_tensor_value_info("a", 1, [2])]),
             else_branch=helper.make_graph([node("Abs", ["h"], ["a"])], "e", [], [helper.make_tensor_value_info("a", 1, [2])])),
        node("Neg", ["x"], ["h"]),
    ]  # fmt: skip
    made = proto(nodes, [X, helper.make_tensor_value_info("b", TensorProto.BOOL, [])])
    assert session(made).run(None, {"x": ONE, "b": np.array(True)})[0].tolist() == [1, -2]


def test_a_cycle_through_a_capture() -> None:
    branch = helper.make_graph([node("Neg", ["y"], ["a"])], "t", [], [helper.make_tensor_value_info("a", 1, [2])])
    made = proto(
        [node("If", ["b"], ["y"], then_branch=branch, else_branch=branch)],
        [X, helper.make_tensor_value_info("b", 9, [])],
    )
    with pytest.raises(Fail, match="not acyclic"):
        session(made)


def loop(body: str, outputs: str = "y", given: str = "n, b, x") -> bytes:
    return model(
        f"""g (float[2] x, bool b) => (float[2] y) <int64 n = {{2}}> {{ {outputs} = Loop ({given}) <body = l {body}> }}"""
    )


BAD_BODIES = [
    (
        "too many inputs",
        loop("(int64 i, bool c, float[2] v, float[2] w) => (bool d, float[2] o) { d = Identity(c) o = Neg(v) }"),
        "body has 4 inputs, the node asks for 3",
    ),
    (
        "too few inputs",
        loop("(int64 i, bool c) => (bool d, float[2] o) { d = Identity(c) o = Neg(x) }"),
        "body has 2 inputs",
    ),
    (
        "too few outputs",
        loop("(int64 i, bool c, float[2] v) => (bool d) { d = Identity(c) }"),
        "body has 1 outputs, the node asks for 2",
    ),
    (
        "too many outputs",
        loop(
            "(int64 i, bool c, float[2] v) => (bool d, float[2] o, float[2] s) { d = Identity(c) o = Neg(v) s = Neg(v) }"
        ),
        "body has 3 outputs",
    ),
    (
        "branches of two types",
        model("""g (float[2] x, bool b) => (float[2] y) { y = If (b) <
        then_branch = t () => (float[2] a) { a = Neg(x) }, else_branch = e () => (int64[2] a) { a = Cast <to = 7> (x) }> }"""),
        "the branches give",
    ),
    (
        "branches of two lengths",
        model("""g (float[2] x, bool b) => (float[2] y) { y = If (b) <
        then_branch = t () => (float[2] a) { a = Neg(x) }, else_branch = e () => (float[2] a, float[2] c) { a = Neg(x) c = Neg(x) }> }"""),
        "else_branch has 2 outputs",
    ),
    (
        "a branch with inputs",
        model("""g (float[2] x, bool b) => (float[2] y) { y = If (b) <
        then_branch = t (float[2] p) => (float[2] a) { a = Neg(p) }, else_branch = e () => (float[2] a) { a = Neg(x) }> }"""),
        "then_branch has 1 inputs, the node asks for 0",
    ),
    (
        "more scan inputs than inputs",
        model("""g (float[2] x, bool b) => (float[2] y) { y = Scan <num_scan_inputs = 3,
        body = s (float e) => (float o) { o = Neg(e) }> (x) }"""),
        "num_scan_inputs is 3",
    ),
]


@pytest.mark.parametrize(("source", "text"), [pytest.param(*case[1:], id=case[0]) for case in BAD_BODIES])
def test_bodies_that_do_not_fit_their_construct(source: bytes, text: str) -> None:
    with pytest.raises(Fail, match=text):
        session(source)
    theirs = pytest.importorskip("onnxruntime")
    theirs.set_default_logger_severity(4)
    with pytest.raises(Exception) as raised:
        theirs.InferenceSession(source, providers=["CPUExecutionProvider"])
    assert type(raised.value).__name__ in ("Fail", "RuntimeException", "InvalidGraph")


# ---- export


@pytest.mark.parametrize("source", [NESTED, *(calling(case[0]).SerializeToString() for case in FUNCTIONS)])
def test_a_graph_read_back_is_the_same(source: bytes) -> None:
    before = ModelProto.FromString(source)
    after = ModelProto()
    after.CopyFrom(before)
    after.graph.CopyFrom(graph_proto(graph(source)))
    assert [n.op_type for n in after.graph.node] == [n.op_type for n in before.graph.node]
    feeds: dict[str, Any] = {
        "x": np.ones([d.dim_value for d in before.graph.input[0].type.tensor_type.shape.dim], np.float32)
    }
    if len(before.graph.input) > 1:
        feeds["b"] = np.array(True)
    same(session(after).run(None, feeds), session(before).run(None, feeds))
