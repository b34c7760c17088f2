"""L3: what lies at the edges of graphs: outputs that are inputs or constants, values read from bodies, names of all kinds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.graph import agree
from onnxplug_testkit.checks.patterns import Step, behind, model_of
from onnxplug_testkit.models import BINARY, UNARY, expected, model, open_session, taken
from onnxplug_testkit.subject import Subject

MANY = 60
"""Inputs and outputs of one graph."""
LONG = 1500
"""Nodes one behind the other: more than functions that call themselves can be deep in Python."""
SIDE = 16
NAMES = (
    "a b",
    'say "no"',
    "it's",
    "/model/layer.0/Add_output_0",
    "größe→大きさ",
    "back\\slash",
    "${x}%s{0}",
    "n" * 300,
    "n" * 299,
)
"""Of values and nodes; ONNX forbids none but the empty one. The last two begin alike."""
Feeds = dict[str, np.ndarray]


@check("graph.edges")
def edges(subject: Subject, seed: int) -> None:
    """Inputs and constants that are outputs, outputs left out, captures from two graphs further out, any names, 60 inputs and outputs."""
    rng = np.random.default_rng(seed)
    for what, made, feeds in _models(taken(subject), rng):
        try:
            with open_session(subject, made) as session:
                for _ in range(2):
                    agree(session.run(None, feeds), expected(made, feeds, subject.name), what=f"a graph {what}")
                    feeds = {name: np.roll(value, 1, -1) if value.ndim else value for name, value in feeds.items()}
                for output in made.graph.output:
                    whole = session.run(None, feeds)
                    (alone,) = session.run([output.name], feeds)
                    wanted = whole[[o.name for o in made.graph.output].index(output.name)]
                    agree([alone], [wanted], what=f"a graph {what}, {output.name[:40]!r} alone")
        except STATUS_ERRORS as error:
            raise AssertionError(f"a graph {what}: {error}") from error


@check("graph.long_chains")
def long_chains(subject: Subject, seed: int) -> None:
    """A graph of 1500 nodes, each behind the one before, is placed and compiled, and gives the oracle's results."""
    operators = [o for o in taken(subject) if o != "Exp"] or ["Exp"]
    names = ["x", *(f"v{number}" for number in range(1, LONG)), "y"]
    nodes = []
    for number, (source, target) in enumerate(itertools.pairwise(names)):
        op_type = operators[number % len(operators)]
        inputs = [source] if op_type in UNARY else [source, "x"]
        nodes.append(helper.make_node(op_type, inputs, [target], f"step{number}"))
    made = model(nodes, {"x": ("n", SIDE)}, ["y"])
    feeds = {"x": np.random.default_rng(seed).uniform(-1, 1, (3, SIDE)).astype(np.float32)}
    with open_session(subject, made) as session:
        agree(session.run(None, feeds), expected(made, feeds, subject.name), what=f"a chain of {LONG} nodes")


@check("graph.left_out_outputs")
def left_out_outputs(subject: Subject, seed: int) -> None:
    """Of nodes with several outputs any may be left out or read by nobody, the first one too."""
    rng = np.random.default_rng(seed)
    met = False
    for what, made, feeds in _several_outputs(rng):
        try:
            with open_session(subject, made, *behind(subject)) as session:
                if subject.name not in session.placement().values():
                    continue
                met = True
                agree(session.run(None, feeds), expected(made, feeds, subject.name), what=what)
        except STATUS_ERRORS as error:
            raise AssertionError(f"{what}: {error}") from error
    if not met:
        raise Unsupported("operators", "no operator with several outputs is claimed")


@check("graph.empty_inputs")
def empty_inputs(subject: Subject, seed: int) -> None:
    """Sequences that make elements of an input without any (sums, products, padding, what is joined to it) give the oracle's results."""
    rng = np.random.default_rng(seed)
    met = False
    for what, made in _of_nothing(rng):
        with open_session(subject, made, *behind(subject)) as session:
            if subject.name not in session.placement().values():
                continue
            met = True
            for rows in (3, 0, 2, 0):
                feeds = {"x": rng.uniform(-1, 1, (rows, SIDE)).astype(np.float32)}
                want = expected(made, feeds, subject.name)
                agree(session.run(None, feeds), want, what=f"{what} of {rows} rows")
    if not met:
        raise Unsupported("operators", "no node of any sequence is claimed")


@check("graph.scalars")
def scalars(subject: Subject, seed: int) -> None:
    """Tensors without dimensions, others in each run, go into sequences, between nodes and out with the oracle's values and shapes."""
    rng = np.random.default_rng(seed)
    met = False
    for what, made, draws in _of_scalars(rng):
        with open_session(subject, made, *behind(subject)) as session:
            if subject.name not in session.placement().values():
                continue
            met = True
            for feeds in draws:
                agree(session.run(None, feeds), expected(made, feeds, subject.name), what=f"a sequence with {what}")
    if not met:
        raise Unsupported("operators", "no node of any sequence is claimed")


def _of_scalars(rng: np.random.Generator) -> Iterator[tuple[str, onnx.ModelProto, list[Feeds]]]:
    """Sequences over ``x`` of [n, 16] and ``s``, a scalar that differs from run to run."""
    factors = [np.array(value, np.float32) for value in (0.5, -2.0, 0.0, 0.5)]
    places = [np.array(value) for value in (3, 0, 15, 3)]
    sequences: dict[str, tuple[list[Step], list[np.ndarray]]] = {
        "a factor": ([("Mul", ["x", "s"], "a"), ("Relu", ["a"], "y")], factors),
        "scalars only": ([("Abs", ["s"], "a"), ("Add", ["a", "s"], "kept"), ("Tanh", ["kept"], "y")], factors),
        "a maximum of all": (
            [("ReduceMax", ["x"], "m", {"keepdims": 0}), ("Add", ["m", "s"], "kept"), ("Sub", ["x", "kept"], "y")], factors,
        ),
        "a place": ([("Abs", ["x"], "a"), ("Gather", ["a", "s"], "b", {"axis": 1}), ("Neg", ["b"], "y")], places),
    }  # fmt: skip
    for what, (steps, values) in sequences.items():
        made = model_of(steps, rng, {"x": ("n", SIDE)})
        element = helper.np_dtype_to_tensor_dtype(values[0].dtype)
        made.graph.input.append(helper.make_tensor_value_info("s", element, []))
        rows = [rng.uniform(-1, 1, (count, SIDE)).astype(np.float32) for count in (3, 3, 1, 3)]
        yield what, made, [{"x": x, "s": s} for x, s in zip(rows, values, strict=True)]


def _of_nothing(rng: np.random.Generator) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Sequences over ``x`` of [n, 16] whose outputs have elements when it has none."""
    axes, half = np.array([0]), np.float32(0.5)
    turned: Step = ("Transpose", ["x"], "t", {"perm": [1, 0]})
    sequences: dict[str, tuple[list[Step], dict[str, Any]]] = {
        "a sum": ([("Relu", ["x"], "r"), ("ReduceSum", ["r", "i"], "s"), ("Add", ["s", "b"], "y")], {"i": axes}),
        "a product": ([turned, ("MatMul", ["t", "x"], "a"), ("Add", ["a", "b"], "c"), ("Relu", ["c"], "y")], {}),
        "a product with a bias": ([("Gemm", ["x", "x", "b"], "a", {"transA": 1}), ("Tanh", ["a"], "y")], {}),
        "two joined": ([("Abs", ["x"], "a"), ("Concat", ["a", "b"], "c", {"axis": 0}), ("Relu", ["c"], "y")], {}),
        "padding": ([("Pad", ["x", "p", "v"], "a"), ("Mul", ["a", "b"], "y")], {"p": np.array([0, 0, 2, 0]), "v": half}),
        "a shape": ([("Shape", ["x"], "s"), ("Cast", ["s"], "c", {"to": TensorProto.FLOAT}), ("Mul", ["c", "v"], "y")], {"v": half}),
    }  # fmt: skip
    for what, (steps, held) in sequences.items():
        yield what, model_of(steps, rng, {"x": ("n", SIDE), "b": (1, SIDE), **held})


def _models(operators: Sequence[str], rng: np.random.Generator) -> Iterator[tuple[str, onnx.ModelProto, Feeds]]:
    """What is odd, a model whose nodes the subject claims, and what to feed it."""

    def node(number: int, source: str, target: str, name: str = "") -> onnx.NodeProto:
        op_type = operators[number % len(operators)]
        return helper.make_node(op_type, [source] if op_type in UNARY else [source, source], [target], name)

    def both(one: str, other: str, target: str, name: str) -> onnx.NodeProto:
        op_type = next((o for o in operators if o in BINARY), operators[0])
        return helper.make_node(op_type, [one] if op_type in UNARY else [one, other], [target], name)

    def drawn(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    x = drawn(3, SIDE)
    one = {"x": ("n", SIDE)}
    held = numpy_helper.from_array(drawn(3, SIDE), "w")
    first = node(0, "x", "y", "first")
    yield "whose output is an initializer", model([first], one, ["y", "w"], [held]), {"x": x}
    reader = node(0, "w", "z", "second")
    yield "whose output is an initializer that a node reads", model([first, reader], one, ["w", "y", "z"], [held]), {"x": x}  # fmt: skip
    yield "whose output is an input", model([first], one, ["x", "y"]), {"x": x}
    through = [node(0, "x", "a", "first"), node(1, "a", "b", "second"), node(2, "b", "y", "third")]
    yield "whose outputs are all its values", model(through, one, ["y", "a", "x", "b"]), {"x": x}
    alike = [node(0, "x", name, f"step {name}") for name in ("a", "b", "c")]
    yield "with one computation thrice", model(alike, one, ["c", "a", "b"]), {"x": x}
    unread = [*through, node(0, "b", "c", "unread"), node(1, "c", "d", "unread too")]
    yield "with nodes that nobody reads", model(unread, {**one, "unused": (2,)}, ["y"]), {"x": x, "unused": drawn(2)}
    names = [node(i, NAMES[i - 1] if i else "x", name, name) for i, name in enumerate(NAMES)]
    yield "with names of all kinds", model(names, one, NAMES[::-1]), {"x": x}
    wide = [node(i, f"x{i}", f"y{i}", f"step{i}") for i in range(MANY)]
    rows = {f"x{i}": drawn(1 + i % 3, SIDE) for i in range(MANY)}
    yield (
        f"of {MANY} inputs and outputs",
        model(wide, {name: ("n", SIDE) for name in rows}, [f"y{i}" for i in reversed(range(MANY))]),
        rows,
    )
    for outer, inner in ((True, True), (True, False), (False, True)):
        flags = {"p": np.array(outer), "q": np.array(inner)}
        yield f"with bodies in bodies ({outer}, {inner})", _nested(node, both, held), {"x": x, **flags}


def _nested(node: Any, both: Any, held: onnx.TensorProto) -> onnx.ModelProto:
    """y = If(p, If(q, op(op(a, x), w), op(w, a)), op(x)): only the inner bodies read a, which is computed, and w, a constant."""

    def body(name: str, nodes: Sequence[onnx.NodeProto], output: str) -> onnx.GraphProto:
        info = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [info])

    then = body("inner then", [both("a", "x", "t", "of computed"), both("t", "w", "u", "of constant too")], "u")
    other = body("inner else", [both("w", "a", "e", "of constant")], "e")
    inside = helper.make_node("If", ["q"], ["i"], "inner", then_branch=then, else_branch=other)
    outer = helper.make_node(
        "If", ["p"], ["y"], "outer",
        then_branch=body("outer then", [inside], "i"), else_branch=body("outer else", [node(0, "x", "o", "of input")], "o"),
    )  # fmt: skip
    made = model([node(0, "x", "a", "before"), outer], {"x": ("n", SIDE)}, ["y"], [held])
    made.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in "pq")
    return made


def _several_outputs(rng: np.random.Generator) -> Iterator[tuple[str, onnx.ModelProto, Feeds]]:
    """Nodes with each subset of outputs left out that leaves one, and with those that nobody reads."""
    x = rng.permutation(4 * SIDE).reshape(4, SIDE).astype(np.float32) / SIDE
    image = rng.permutation(2 * SIDE * SIDE).reshape(1, 2, SIDE, SIDE).astype(np.float32)
    scale, bias = (rng.uniform(0.5, 1, SIDE).astype(np.float32) for _ in range(2))
    cases: list[tuple[str, int, Feeds, Mapping[str, np.ndarray], Mapping[str, Any], int]] = [
        ("TopK", 2, {"x": x}, {"k": np.array([3])}, {}, 17),
        ("MaxPool", 2, {"x": image}, {}, {"kernel_shape": [2, 2], "strides": [2, 2]}, 17),
        ("Split", 3, {"x": x}, {"parts": np.array([4, 10, 2])}, {"axis": 1}, 17),
        ("Unique", 4, {"x": np.round(x)}, {}, {}, 17),
        ("LayerNormalization", 3, {"x": x}, {"s": scale, "b": bias}, {}, 17),
        ("Dropout", 2, {"x": x}, {}, {}, 17),
        ("GRU", 2, {"x": rng.uniform(-1, 1, (3, 2, 4)).astype(np.float32)},
         {n: rng.uniform(-1, 1, s).astype(np.float32) for n, s in {"w": (1, 15, 4), "r": (1, 15, 5)}.items()}, {"hidden_size": 5}, 17),
        ("LSTM", 3, {"x": rng.uniform(-1, 1, (3, 2, 4)).astype(np.float32)},
         {n: rng.uniform(-1, 1, s).astype(np.float32) for n, s in {"w": (1, 20, 4), "r": (1, 20, 5)}.items()}, {"hidden_size": 5}, 17),
    ]  # fmt: skip
    optional = {"MaxPool": 1, "Unique": 1, "LayerNormalization": 1, "Dropout": 1, "GRU": 0, "LSTM": 0}
    for op_type, count, feeds, constants, attributes, opset in cases:
        held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
        for wanted in range(1, 2**count):
            kept = [i for i in range(count) if wanted >> i & 1]
            for absent in (False, True):
                names = [
                    "" if absent and i not in kept and i >= optional.get(op_type, count) else f"o{i}"
                    for i in range(count)
                ]
                if absent and "" not in names:
                    continue
                node = helper.make_node(op_type, ["x", *constants], names, "node", **attributes)
                shapes = {name: value.shape for name, value in feeds.items()}
                made = _typed(model([node], shapes, [f"o{i}" for i in kept], held, opset))
                yield f"{op_type} of which outputs {kept} are {'there' if absent else 'read'}", made, feeds


def _typed(made: onnx.ModelProto) -> onnx.ModelProto:
    """With the outputs' element types as inferred; without shapes."""
    bare = onnx.ModelProto()
    bare.CopyFrom(made)
    for output in bare.graph.output:
        output.ClearField("type")
    found = {v.name: v for v in onnx.shape_inference.infer_shapes(bare).graph.output}
    for output in made.graph.output:
        output.type.tensor_type.elem_type = found[output.name].type.tensor_type.elem_type
    return made
