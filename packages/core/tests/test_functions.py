"""Functions of a model: inlined, typed, refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_functions import FUNCTIONS, Rule, calling, with_functions
from core_graphs import expected
from core_protos import ONE, graph, node, proto, session
from onnx import ModelProto, TensorProto, helper, parser

import onnxplug as ort
from onnxplug.contract.errors import Fail, InvalidArgument, InvalidGraph
from onnxplug.contract.types import TensorType
from onnxplug.graph.expand import expand
from onnxplug.graph.export import graph_proto


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
