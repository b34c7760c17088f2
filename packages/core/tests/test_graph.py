"""Building graphs: what is refused and how, names, initializers, nested graphs, functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from core_graphs import expected, model, same
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

import onnxplug as ort
from onnxplug.contract.errors import STATUS_ERRORS, Fail, InvalidArgument, InvalidGraph, NotImplemented
from onnxplug.contract.types import TensorType
from onnxplug.graph import Graph, Schemas, build_graph
from onnxplug.graph.expand import expand
from onnxplug.graph.export import graph_proto
from onnxplug.graph.infer import infer_graph
from onnxplug.load import load_model

X, Y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
ONE = np.array([1, -2], np.float32)


def proto(nodes: Sequence[Any], inputs: Sequence[Any] = (X,), outputs: Sequence[Any] = (Y,), **more: Any) -> ModelProto:
    opsets = more.pop("opsets", {"": 21})
    return helper.make_model(
        helper.make_graph(list(nodes), "g", list(inputs), list(outputs), more.pop("initializer", None)),
        opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()],
        ir_version=more.pop("ir_version", 9),
        functions=more.pop("functions", []),
    )


def session(source: ModelProto | bytes, **keywords: Any) -> ort.InferenceSession:
    data = source if isinstance(source, bytes) else source.SerializeToString()
    return ort.InferenceSession(data, providers=["CPUExecutionProvider"], enable_fallback=0, **keywords)


def graph(source: ModelProto | bytes) -> Graph:
    built = build_graph(load_model(source if isinstance(source, bytes) else source.SerializeToString()), Schemas())
    infer_graph(built)
    return built


node = helper.make_node


def twice(made: Any) -> Any:
    made.attribute.append(made.attribute[0])
    return made


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
        NotImplemented,
        match=r"Could not find an implementation for q\.Relu.*CPUExecutionProvider: no kernel for q\.Relu",
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


def test_initializers_defined_twice() -> None:
    w = numpy_helper.from_array(ONE, "w")
    with pytest.raises(Fail, match=r"Duplicate initializer \(w\)"):
        session(proto([node("Add", ["x", "w"], ["y"])], initializer=[w, w]))
    with pytest.raises(Fail, match=r"Duplicate definition of name \(w\)"):
        session(proto([node("Neg", ["x"], ["w"]), node("Add", ["x", "w"], ["y"])], initializer=[w]))


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


# ---- functions


def with_functions(
    inputs: str, body: str, *functions: str, imports: str = '"": 21, "f": 1', version: int = 21
) -> ModelProto:
    """A model of one input x and one output y; the functions are of domain f."""
    kind = inputs.partition(": ")[2]
    text = f'<ir_version: 10, opset_import: ["": {version}, "f": 1]> g ({kind} x) => (y) {{ {body} }}'
    for function in functions:
        text += f' <domain: "f", opset_import: [{imports}]> {function}'
    return parser.parse_model(text)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x)
    return powers / powers.sum(axis, keepdims=True)


SOFT = "q = Softmax <axis: int = @k> (p) }"
PICK = """pick (p) => (q) { z = Constant <value_float = 0.0> () s = ReduceSum <keepdims = 0> (p) c = Less(s, z) q = If (c) <
    then_branch = t () => (a) { a = Neg(p) }, else_branch = e () => (a) { h = Abs(p) a = Add(h, z) }> }"""
BRANCHES = """s = ReduceSum <keepdims = 0> (x) z = Cast <to = 9> (s)
    y = If (z) <then_branch = t () => (a) { a = f.neg(x) }, else_branch = e () => (a) { a = f.neg(x) }>"""
Rule = Callable[[np.ndarray], np.ndarray]
FUNCTIONS: list[tuple[str, Rule, str, str, list[str]]] = [
    ("plain", np.negative, "2", "y = f.neg(x)", ["neg (p) => (q) { q = Neg(p) }"]),
    ("nested", np.array, "2", "y = f.outer(x)",
     ["outer (p) => (q) { h = f.neg(p) q = f.neg(h) }", "neg (p) => (q) { q = Neg(p) }"]),
    ("an attribute", lambda x: softmax(x, 0), "2, 2", "y = f.soft <k = 0> (x)", [f"soft <k> (p) => (q) {{ {SOFT}"]),
    ("an attribute handed on", lambda x: softmax(x, 0), "2, 2", "y = f.outer <j = 0> (x)",
     ["outer <j> (p) => (q) { q = f.soft <k: int = @j> (p) }", f"soft <k> (p) => (q) {{ {SOFT}"]),
    ("an attribute left out", lambda x: softmax(x, 1), "2, 2", "y = f.soft (x)", [f"soft <k> (p) => (q) {{ {SOFT}"]),
    ("a default", lambda x: softmax(x, 0), "2, 2", "y = f.soft (x)", [f"soft <k: int = 0> (p) => (q) {{ {SOFT}"]),
    ("a default not used", lambda x: softmax(x, 1), "2, 2", "y = f.soft <k = 1> (x)", [f"soft <k: int = 0> (p) => (q) {{ {SOFT}"]),
    ("an output that is an input", np.array, "2", "y = f.same(x)", ["same (p) => (p) { h = Neg(p) }"]),
    ("an input handed out amid the graph", np.zeros_like, "2", "a, b = f.both(x) y = Add(a, b)", ["both (p) => (p, q) { q = Neg(p) }"]),
    ("one value given out twice", lambda x: -2 * x, "2", "a, b = f.both(x) y = Add(a, b)", ["both (p) => (q, q) { q = Neg(p) }"]),
    ("outputs not wanted", np.negative, "2", "y = f.both(x)", ["both (p) => (q, r) { q = Neg(p) r = Abs(p) }"]),
    ("used twice", lambda x: np.maximum(-x, 0), "2", "a = f.neg(x) b = f.neg(a) y = Add(a, b)",
     ["neg (p) => (q) { h = Neg(p) q = Relu(h) }"]),
    ("an integer of a float", lambda x: x + 2, "2, 3", "s = f.rows(x) c = Cast <to = 1> (s) y = Add(x, c)",
     ["rows (p) => (q) { z = Shape(p) i = Constant <value_ints = [0]> () q = Gather(z, i) }"]),
    ("nested graphs that read its input", np.negative, "2", "y = f.pick(x)", [PICK]),
    ("nodes out of order", np.abs, "2", "y = f.go(x)", ["go (p) => (q) { q = Abs(h) h = Neg(p) }"]),
    ("an older opset", np.array, "2, 2", "y = f.drop(x)",
     ["drop (p) => (q) { h = Unsqueeze <axes = [0]> (p) q = Squeeze <axes = [0]> (h) }"]),
    ("constants of its own", lambda x: x + np.float32([1, 2]), "2", "y = f.plus(x)",
     ["plus (p) => (q) { c = Constant <value = float[2] {1, 2}> () q = Add(p, c) }"]),
    ("called in a branch", np.negative, "2", BRANCHES, ["neg (p) => (q) { q = Neg(p) }"]),
]  # fmt: skip


def calling(name: str) -> ModelProto:
    """The model of a case of FUNCTIONS."""
    _, _, dims, body, functions = next(case for case in FUNCTIONS if case[0] == name)
    return with_functions(
        f"x: float[{dims}]", body, *functions, imports='"": 11' if "older" in name else '"": 21, "f": 1'
    )


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize(("name", "rule"), [pytest.param(*case[:2], id=case[0]) for case in FUNCTIONS])
def test_functions(name: str, rule: Rule, level: str) -> None:
    made = calling(name)
    dims = [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim]
    x = np.arange(-2, np.prod(dims) - 2, dtype=np.float32).reshape(dims)
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    mine = session(made, sess_options=options)
    np.testing.assert_allclose(mine.run(None, {"x": x})[0], rule(x), rtol=1e-6)
    assert [o.name for o in mine.get_outputs()] == ["y"]
    assert len(mine.explain().inlined) >= 1


def optional_bias(body: str) -> ModelProto:
    function = helper.make_function(
        "f", "plus", ["p", "w"], ["q"], parser.parse_graph(f"g (float p, float w) => (float q) {{ {body} }}").node,
        [helper.make_opsetid("", 21)],
    )  # fmt: skip
    return proto([node("plus", ["x"], ["y"], domain="f")], opsets={"": 21, "f": 1}, functions=[function])


def test_an_input_left_out() -> None:
    clip = optional_bias("z = Constant <value_float = -1.0> () q = Clip(p, z, w)")
    assert session(clip).run(None, {"x": ONE})[0].tolist() == [1, -1]
    nested = optional_bias("""t = Constant <value = bool[1] {1}> () z = Constant <value_float = -1.0> ()
        q = If (t) <then_branch = t () => (a) { a = Clip(p, z, w) }, else_branch = e () => (a) { a = Clip(p, w, z) }>""")
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        assert session(nested, sess_options=options).run(None, {"x": ONE})[0].tolist() == [1, -1]
    with pytest.raises(InvalidGraph, match=r"input 1 is marked single|has input size 1"):
        session(optional_bias("q = Add(p, w)"))


def test_overloads() -> None:
    made = with_functions("x: float[2]", "a = f.go(x) y = f.go:other(a)", "go (p) => (q) { q = Neg(p) }")
    other = made.functions.add()
    other.CopyFrom(made.functions[0])
    other.overload, other.node[0].op_type = "other", "Abs"
    assert session(made).run(None, {"x": ONE})[0].tolist() == [1, 2]
    saved = graph_proto(graph(made))
    assert [n.overload for n in saved.node] == ["", "other"]


def test_a_function_in_place_of_an_operator() -> None:
    """A model-local function of the default domain goes before the operator of its name."""
    made = with_functions("x: float[2]", "y = Relu(x)", "Relu (p) => (q) { q = Neg(p) }")
    made.functions[0].domain = ""
    assert session(made).run(None, {"x": ONE})[0].tolist() == [-1, 2]


BAD_FUNCTIONS = [
    (
        "recursive",
        with_functions("x: float[2]", "y = f.again(x)", "again (p) => (q) { q = f.again(p) }"),
        InvalidGraph,
        "Function 'again' .* is recursive",
    ),
    (
        "recursive by two",
        with_functions("x: float[2]", "y = f.a(x)", "a (p) => (q) { q = f.b(p) }", "b (p) => (q) { q = f.a(p) }"),
        InvalidGraph,
        "recursive",
    ),
    (
        "recursive in a branch",
        with_functions(
            "x: float[2]",
            "y = f.a(x)",
            """a (p) => (q) { c = Constant <value = bool[1] {1}> ()
        q = If (c) <then_branch = t () => (r) { r = f.a(p) }, else_branch = e () => (r) { r = Neg(p) }> }""",
        ),
        InvalidGraph,
        "recursive",
    ),
    (
        "too many inputs",
        with_functions("x: float[2]", "y = f.a(x, x)", "a (p) => (q) { q = Neg(p) }"),
        Fail,
        "has 2 inputs and 1 outputs, the function has 1 and 1",
    ),
    (
        "too many outputs",
        with_functions("x: float[2]", "y, z = f.a(x)", "a (p) => (q) { q = Neg(p) }"),
        Fail,
        "has 1 inputs and 2 outputs",
    ),
    (
        "output not made",
        with_functions("x: float[2]", "y = f.a(x)", "a (p) => (q) { r = Neg(p) }"),
        InvalidGraph,
        "Output 'q' of function 'a' of domain 'f' is not made",
    ),
    (
        "dangling",
        with_functions("x: float[2]", "y = f.a(x)", "a (p) => (q) { q = Neg(r) }"),
        InvalidArgument,
        "Node input 'r'",
    ),
    (
        "reads the caller's values",
        with_functions("x: float[2]", "y = f.a(x)", "a (p) => (q) { q = Neg(x) }"),
        InvalidArgument,
        "Node input 'x'",
    ),
    (
        "defined twice inside",
        with_functions("x: float[2]", "y = f.a(x)", "a (p) => (q) { q = Neg(p) q = Abs(p) }"),
        Fail,
        "defines 'q' twice",
    ),
    (
        "given twice",
        with_functions("x: float[2]", "y = f.a(x)", "a (p) => (q) { q = Neg(p) }", "a (p) => (q) { q = Neg(p) }"),
        Fail,
        "is defined twice",
    ),
    (
        "unknown inside",
        with_functions("x: float[2]", "y = f.a(x)", "a (p) => (q) { q = Nope(p) }"),
        InvalidGraph,
        "No Op registered for Nope",
    ),
    (
        "cyclic",
        with_functions("x: float[2]", "y = f.a(x)", "a (p) => (q) { r = Neg(q) q = Abs(r) }"),
        Fail,
        "not acyclic",
    ),
    (
        "types",
        with_functions("x: float[2]", "y = f.a(x)", "a (p) => (q) { q = Not(p) }"),
        InvalidGraph,
        r"Type 'tensor\(float\)'",
    ),
]


@pytest.mark.parametrize(("made", "error", "text"), [pytest.param(*case[1:], id=case[0]) for case in BAD_FUNCTIONS])
def test_functions_that_are_refused(made: ModelProto, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        session(made)


def test_functions_that_unfold_without_end_in_sight() -> None:
    lines = [f"f{i} (p) => (q) {{ a = f.f{i + 1}(p) q = f.f{i + 1}(a) }}" for i in range(40)]
    made = with_functions("x: float[2]", "y = f.f0(x)", *lines, "f40 (p) => (q) { q = Neg(p) }")
    with pytest.raises(InvalidGraph, match="unfold to more than 1048576 nodes"):
        session(made)
    chain = [f"f{i} (p) => (q) {{ q = f.f{i + 1}(p) }}" for i in range(400)]
    with pytest.raises(InvalidGraph, match="nests deeper than 200 functions"):
        session(with_functions("x: float[2]", "y = f.f0(x)", *chain, "f400 (p) => (q) { q = Neg(p) }"))


def test_types_of_functions_are_known_before_they_are_inlined() -> None:
    built = graph(
        with_functions("x: float[2, 3]", "s = f.rows(x) y = Cast <to = 1> (s)", "rows (p) => (q) { q = Shape(p) }")
    )
    assert built.value("s").type == TensorType("int64", (2,))
    assert built.value("y").type == TensorType("float", (2,))


@pytest.mark.parametrize(
    ("op", "attributes", "inputs"),
    [("LayerNormalization", {}, 3), ("MeanVarianceNormalization", {"axes": [0]}, 1), ("Celu", {"alpha": 2.0}, 1),
     ("SoftmaxCrossEntropyLoss", {}, 2), ("GroupNormalization", {"num_groups": 1}, 3), ("Gelu", {"approximate": "tanh"}, 1),
     ("Clip", {}, 1), ("HardSwish", {}, 1), ("PRelu", {}, 2)],
)  # fmt: skip
def test_bodies_of_schemas(op: str, attributes: dict[str, Any], inputs: int) -> None:
    """An operator's own body gives the operator's results, its nodes inferred to the same types."""
    names = ["x", "s", "t"][:inputs]
    kinds = {"x": (TensorProto.FLOAT, [2, 4]), "s": (TensorProto.FLOAT, [4]), "t": (TensorProto.FLOAT, [4])}
    if op == "SoftmaxCrossEntropyLoss":
        kinds["s"] = (TensorProto.INT64, [2])
    infos = [helper.make_tensor_value_info(n, *kinds[n]) for n in names]
    made = proto([node(op, names, ["y"], **attributes)], infos, [helper.make_empty_tensor_value_info("y")])
    built = graph(made)
    call, before = built.nodes[0], built.outputs[0].type
    assert expand(built, [call]) == [call]
    assert str(built.outputs[0].type) == str(before)
    assert all(v.type is not None for n in built.nodes for v in n.outputs if v is not None)
    generator = np.random.default_rng(0)
    feeds = {n: generator.normal(size=kinds[n][1]).astype(np.float32) for n in names}
    if op == "SoftmaxCrossEntropyLoss":
        feeds["s"] = np.array([1, 3])
    inlined = proto([], infos, [helper.make_empty_tensor_value_info("y")])
    inlined.graph.CopyFrom(graph_proto(built))
    np.testing.assert_allclose(
        expected(inlined.SerializeToString(), feeds)[0], session(made).run(None, feeds)[0], rtol=1e-4, atol=1e-6
    )


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
