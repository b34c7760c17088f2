"""L3: sequences of nodes that providers fuse, beside those that only look like them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.graph import agree
from onnxplug_testkit.models import CPU, chain, expected, model, open_session
from onnxplug_testkit.subject import Subject

EVERY = 1
"""Which of the sequences are tried: each, each second, ..."""
SIDE = 8
"""Every side of the tensors, so that a wrong axis is seen by its values alone."""

WIDE = 64
"""A side of weights that are too large to be part of a region's name."""

Step = tuple[str, Sequence[str], str] | tuple[str, Sequence[str], str, Mapping[str, Any]]
"""Operator, inputs, output, attributes. The last output, and those that nothing reads, are the graph's; so is ``kept``."""


@check("graph.patterns")
def patterns(subject: Subject, seed: int) -> None:
    """Sequences that providers fuse give the oracle's results: with other readers in between, other axes, factors and broadcasts."""
    rng = np.random.default_rng(seed)
    met = False
    for name, made in list(_models(rng))[::EVERY]:
        try:
            with open_session(subject, made, *behind(subject)) as session:
                if subject.name not in session.placement().values():
                    continue
                met = True
                for _ in range(2):
                    feeds = {v.name: rng.uniform(-2, 2, _shape(v)).astype(np.float32) for v in made.graph.input}
                    try:
                        agree(session.run(None, feeds), expected(made, feeds, subject.name))
                    except AssertionError as error:
                        raise AssertionError(f"{name}: {error}") from error
        except STATUS_ERRORS as error:
            raise AssertionError(f"{name}: {error}") from error
    if not met:
        raise Unsupported("operators", "no node of any sequence is claimed")


@check("graph.sessions_are_apart")
def sessions_are_apart(subject: Subject, seed: int) -> None:
    """Sessions of one structure with different weights run in turns, and after the first was closed, each with its own."""
    rng = np.random.default_rng(seed)
    steps: list[Step] = [
        ("MatMul", ["x", "w"], "a"),
        ("Add", ["a", "b"], "c"),
        ("Relu", ["c"], "d"),
        ("Mul", ["d", "s"], "y"),
    ]
    models = [model_of(steps, rng, {name: (WIDE, WIDE) for name in "xwbs"}) for _ in range(2)]
    x = rng.uniform(-1, 1, (WIDE, WIDE)).astype(np.float32)
    wanted = [expected(made, {"x": x}, subject.name) for made in models]
    first = open_session(subject, models[0], *behind(subject))
    with open_session(subject, models[1], *behind(subject)) as second:
        try:
            if subject.name not in second.placement().values():
                raise Unsupported("operators")
            for _ in range(2):
                agree(first.run(None, {"x": x}), wanted[0])
                agree(second.run(None, {"x": x}), wanted[1])
        finally:
            first.close()
        agree(second.run(None, {"x": x}), wanted[1])


@check("graph.attributes_are_apart")
def attributes_are_apart(subject: Subject, seed: int) -> None:
    """Sessions of one structure that differ in attributes, in what reads what, or in one element of a constant, each have their own."""
    rng = np.random.default_rng(seed)
    _wired_otherwise(subject, rng)
    met = False
    for op_type, variants in _ATTRIBUTES.items():
        weights, x = (rng.uniform(-1, 1, (SIDE, SIDE)).astype(np.float32) for _ in range(2))
        held = {name: weights if value is None else value for name, value in variants[0][1].items()}
        opened: list[tuple[onnxplug.InferenceSession, onnx.ModelProto]] = []
        try:
            for attributes, constants in variants:
                node: list[Step] = [(op_type, ["x", *held], "a", attributes), ("Relu", ["a"], "y")]
                made = model_of(node, rng, {**held, **{n: v for n, v in constants.items() if v is not None}})
                opened.append((open_session(subject, made, *behind(subject)), made))
            met |= any(session.placement()["step0"] == subject.name for session, _ in opened)
            for session, made in [*opened, *opened[::-1]]:
                agree(session.run(None, {"x": x}), expected(made, {"x": x}, subject.name), what=op_type)
        finally:
            for session, _ in opened:
                session.close()
    if not met:
        raise Unsupported("operators")


def _wired_otherwise(subject: Subject, rng: np.random.Generator) -> None:
    """Two sessions of the same nodes, of which the last reads the results of the others one way round and the other."""
    x = rng.uniform(-1, 1, (SIDE, SIDE)).astype(np.float32)
    with contextlib.ExitStack() as stack:
        opened = []
        for ends in (["a", "b"], ["b", "a"]):
            made = model_of([("Neg", ["x"], "a"), ("Tanh", ["x"], "b"), ("Sub", ends, "y")], rng, {})
            opened.append((stack.enter_context(open_session(subject, made, *behind(subject))), made))
        for session, made in [*opened, *opened[::-1]]:
            agree(session.run(None, {"x": x}), expected(made, {"x": x}, subject.name), what="nodes wired otherwise")


@check("graph.exported_regions")
def exported_regions(subject: Subject, seed: int) -> None:
    """Models that hold what the subject compiled and exported give the results of those they were compiled from, loaded in any order."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((5, 16)).astype(np.float32)
    loads: list[tuple[bytes, list[Any]]] = []
    for made in products(subject, rng):
        if (compiled := exported(subject, made)) is not None:
            loads.append((compiled, expected(made, {"x": x}, subject.name)))
    if not loads:
        raise Unsupported("exports")
    opened: list[tuple[onnxplug.InferenceSession, list[Any]]] = []
    try:
        for compiled, want in [*loads, *loads[::-1]]:
            opened.append((open_session(subject, compiled, *behind(subject)), want))
        for session, want in opened:
            for rows in (5, 2):
                agree(session.run(None, {"x": x[:rows]}), [w[:rows] for w in want])
    finally:
        for session, _ in opened:
            session.close()
    with open_session(subject, loads[0][0], *behind(subject)) as session:
        agree(session.run(None, {"x": x}), loads[0][1], what="loaded when the others were closed")


def exported(subject: Subject, made: onnx.ModelProto) -> bytes | None:
    """The model that holds what the subject compiled of ``made``; None where it exports nothing."""
    options = onnxplug.SessionOptions()
    options.add_provider(subject.name, dict(subject.options))
    compiler = onnxplug.ModelCompiler(options, made.SerializeToString(), embed_compiled_data_into_model=True)
    compiled = compiler.compile_to_bytes()
    found = any(node.op_type == "EPContext" for node in onnx.load_from_string(compiled).graph.node)
    return compiled if found else None


def behind(subject: Subject) -> list[str]:
    """Who stands behind the subject in sessions whose nodes it need not all take."""
    return [] if subject.name == CPU else [CPU]


def products(subject: Subject, rng: np.random.Generator) -> list[onnx.ModelProto]:
    """Models from ``x`` of [n, 16] of which the subject takes nodes: a chain, and products with weights, a bias and activations."""
    dense: list[Step] = [
        ("MatMul", ["x", "w"], "a"), ("Add", ["a", "b"], "kept"), ("Relu", ["kept"], "r"), ("Gemm", ["r", "w", "b"], "g"),
        ("Tanh", ["g"], "t"), ("Mul", ["t", "s"], "y"),
    ]  # fmt: skip
    softened: list[Step] = [
        ("MatMul", ["x", "w"], "a"), ("Softmax", ["a"], "p", {"axis": -1}), ("MatMul", ["p", "v"], "m"), ("Sigmoid", ["m"], "y"),
    ]  # fmt: skip
    found = [chain(subject, 5)]
    for steps, held in ((dense, {"w": (16, 16), "b": (16,), "s": (1, 16)}), (softened, {"w": (16, 40), "v": (40, 8)})):
        made = model_of(steps, rng, {"x": ("n", 16), **held})
        with open_session(subject, made, *behind(subject)) as session:
            if subject.name in session.placement().values():
                found.append(made)
    return found


def _dented(place: int) -> np.ndarray:
    """Weights of [64, 1, 8] that differ in one element."""
    made = np.ones(SIDE * WIDE, np.float32)
    made[place] = -3
    return made.reshape(WIDE, 1, SIDE)


_ATTRIBUTES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "LeakyRelu": [({"alpha": alpha}, {}) for alpha in (0.5, 0.1, -0.7)],
    "Elu": [({"alpha": alpha}, {}) for alpha in (1.0, 0.3)],
    "Softmax": [({"axis": axis}, {}) for axis in (-1, 0)],
    "Transpose": [({"perm": perm}, {}) for perm in ([1, 0], [0, 1])],
    "Gemm": [({"alpha": alpha, "transB": turn}, {"w": None}) for alpha, turn in ((1.0, 0), (1.0, 1), (0.5, 1))],
    "ReduceSum": [({"keepdims": 1}, {"axes": np.array([axis])}) for axis in (0, 1)],
    "Mul": [({}, {"k": np.array(factor, np.float32)}) for factor in (2.0, -3.0)],
    "Clip": [({}, {"low": np.array(low, np.float32)}) for low in (-0.5, 0.25)],
    "Add": [({}, {"b": _dented(place)}) for place in (0, SIDE * WIDE // 2, SIDE * WIDE - 1)],
    "Flatten": [({"axis": axis}, {}) for axis in (0, 1, 2)],
    "Concat": [({"axis": axis}, {"w": None}) for axis in (0, 1)],
}
"""Of operators: attributes, and constants behind ``x`` (None: weights, the same in each), which alone differ."""


def _shape(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _models(rng: np.random.Generator) -> Iterator[tuple[str, onnx.ModelProto]]:
    for name, steps, constants in _sequences():
        yield name, model_of(steps, rng, constants)


def model_of(steps: Sequence[Step], rng: np.random.Generator, constants: Mapping[str, Any]) -> onnx.ModelProto:
    """The model of ``steps`` over x, [8, 8] or as ``constants`` say; those are shapes of random weights, or values."""
    nodes = [
        helper.make_node(s[0], s[1], [s[2]], f"step{i}", **(s[3] if len(s) > 3 else {})) for i, s in enumerate(steps)
    ]
    shapes: dict[str, Sequence[int | str]] = {"x": constants.get("x", (SIDE, SIDE))}
    held = [
        numpy_helper.from_array(
            rng.uniform(-1, 1, v).astype(np.float32) if isinstance(v, tuple) else np.asarray(v), name
        )
        for name, v in constants.items()
        if name != "x"
    ]
    read = {name for s in steps for name in s[1]}
    outputs = [s[2] for s in steps if s[2] not in read or s[2].startswith("kept")]
    return model(nodes, shapes, outputs, held)


def _f(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def _sequences() -> Iterator[tuple[str, list[Step], dict[str, Any]]]:
    w = (SIDE, SIDE)
    for bias in ((SIDE,), (SIDE, 1), (1,), (1, SIDE), (SIDE, SIDE), (2, 1, 1)):
        for operands in (["a", "b"], ["b", "a"]):
            biased: list[Step] = [("MatMul", ["x", "w"], "a"), ("Add", operands, "y")]
            yield f"MatMul and a bias of {bias}", biased, {"w": w, "b": bias}
    for first in ("MatMul", "Gemm", "Add", "Mul"):
        two: list[Step] = [(first, ["x", "w"], "a"), ("Relu", ["a"], "y")]
        yield f"{first}, Relu", two, {"w": w}
        yield f"{first}, Relu and another reader", [*two, ("Abs", ["a"], "z")], {"w": w}
        yield f"{first}, Relu, both wanted", [(first, ["x", "w"], "kept"), ("Relu", ["kept"], "y")], {"w": w}
    yield from _convolutions()
    for perm in ([0, 2, 1], [1, 0, 2], [2, 1, 0]):
        turned: list[Step] = [("Transpose", ["x"], "t", {"perm": perm}), ("MatMul", ["t", "w"], "y")]
        yield f"MatMul of Transpose {perm}", turned, {"x": (SIDE,) * 3, "w": (SIDE,) * 3}
    for factor in (1.0, 1.702, -0.5):
        gate: list[Step] = [("Mul", ["x", "k"], "a"), ("Sigmoid", ["a"], "s"), ("Mul", ["x", "s"], "y")]
        yield f"x Sigmoid({factor} x)", gate, {"k": _f(factor)}
    for root, one in ((2**0.5, 1.0), (2.0, 1.0), (2**0.5, 1.5)):
        bell: list[Step] = [
            ("Div", ["x", "r"], "a"), ("Erf", ["a"], "e"), ("Add", ["e", "o"], "p"), ("Mul", ["x", "p"], "q"), ("Mul", ["q", "h"], "y"),
        ]  # fmt: skip
        yield f"0.5 x ({one} + Erf(x / {root:.3f}))", bell, {"r": _f(root), "o": _f(one), "h": _f(0.5)}
    for axis, power in ((-1, 2.0), (0, 2.0), (-1, 4.0)):
        yield f"a normalization of axis {axis}, power {power}", _normalization(axis), {
            "p": _f(power), "e": _f(0.5), "g": (SIDE,), "b": (SIDE,),
        }  # fmt: skip
    for axis in (-1, 0):
        attend: list[Step] = [
            ("MatMul", ["x", "k"], "a"), ("Div", ["a", "r"], "s"), ("Add", ["s", "m"], "t"), ("Softmax", ["t"], "p", {"axis": axis}),
            ("MatMul", ["p", "v"], "y"),
        ]  # fmt: skip
        yield f"attention over axis {axis}", attend, {"k": w, "r": _f(1.5), "m": w, "v": w}
    for low, high in ((-1.0, 1.0), (1.0, -1.0)):
        yield (
            f"Max {low}, Min {high}",
            [("Max", ["x", "l"], "a"), ("Min", ["a", "h"], "y")],
            {"l": _f(low), "h": _f(high)},
        )
    for to in (TensorProto.INT32, TensorProto.FLOAT16, TensorProto.BOOL):
        there: list[Step] = [("Cast", ["x"], "a", {"to": to}), ("Cast", ["a"], "y", {"to": TensorProto.FLOAT})]
        yield f"Cast to {to} and back", there, {}
    grid: list[Step] = [("QuantizeLinear", ["x", "s", "z"], "q"), ("DequantizeLinear", ["q", "s", "z"], "y")]
    halves: list[Step] = [("Mul", ["x", "f"], "a"), ("Floor", ["a"], "b"), ("Mul", ["b", "t"], "h")]
    ties: list[Step] = [*halves, ("QuantizeLinear", ["h", "o", "z"], "q"), ("DequantizeLinear", ["q", "o", "z"], "y")]
    for kind in (np.uint8, np.int8):
        fixed = {"f": _f(40.0), "t": _f(0.5), "o": _f(1.0), "z": np.array(100, kind)}
        yield f"halves and what does not fit, quantized to {np.dtype(kind).name}", ties, fixed
    odd = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 0.5, -0.5, 1e-30], np.float32)
    truth: list[Step] = [
        ("Mul", ["x", "n"], "a"),
        ("Add", ["a", "d"], "b"),
        ("Cast", ["b"], "t", {"to": TensorProto.BOOL}),
    ]
    truth.append(("Cast", ["t"], "y", {"to": TensorProto.FLOAT}))
    yield "the truth of NaN, zeros and fractions", truth, {"n": _f(0.0), "d": odd}
    yield "quantized and back", grid, {"s": _f(0.125), "z": np.array(3, np.uint8)}
    folded: list[Step] = [
        ("Reshape", ["x", "n"], "a"),
        ("Transpose", ["a"], "t", {"perm": [1, 0]}),
        ("Reshape", ["t", "m"], "y"),
    ]
    yield "Reshape, Transpose, Reshape", folded, {"n": np.array([2, 32]), "m": np.array([SIDE, SIDE])}
    for op_type in ("Neg", "Reciprocal", "Exp", "Abs"):
        yield f"{op_type} twice", [(op_type, ["x"], "a"), (op_type, ["a"], "y")], {}
    yield "Sub of itself", [("Sub", ["x", "x"], "a"), ("Add", ["a", "w"], "y")], {"w": w}
    yield "Softmax of two axes", [("Softmax", ["x"], "a", {"axis": 0}), ("Softmax", ["a"], "y", {"axis": 1})], {}
    yield "two slopes", [("LeakyRelu", ["x"], "a", {"alpha": 0.7}), ("LeakyRelu", ["a"], "y", {"alpha": 0.2})], {}


def _convolutions() -> Iterator[tuple[str, list[Step], dict[str, Any]]]:
    image = {"x": (1, SIDE, SIDE, SIDE), "w": (SIDE, SIDE, 3, 3)}
    conv: Step = ("Conv", ["x", "w"], "a", {"pads": [1, 1, 1, 1]})
    yield "Conv, Relu and another reader", [conv, ("Relu", ["a"], "y"), ("Abs", ["a"], "z")], image
    for bias in ((1, SIDE, 1, 1), (SIDE,), (1, 1, SIDE, 1)):
        yield f"Conv and a bias of {bias}", [conv, ("Add", ["a", "b"], "y")], {**image, "b": bias}
    yield "Conv, Add of its input, Relu", [conv, ("Add", ["a", "x"], "s"), ("Relu", ["s"], "y")], image
    yield "Conv, Relu, Add of its input", [conv, ("Relu", ["a"], "r"), ("Add", ["x", "r"], "y")], image
    for epsilon in (1e-5, 0.5):
        channels = {name: (SIDE,) for name in "gbm"} | {"v": np.linspace(0.5, 2, SIDE, dtype=np.float32)}
        norm: Step = ("BatchNormalization", ["a", "g", "b", "m", "v"], "y", {"epsilon": epsilon})
        yield f"Conv, BatchNormalization with epsilon {epsilon}", [conv, norm], {**image, **channels}


def _normalization(axis: int) -> list[Step]:
    mean = {"axes": [axis], "keepdims": 1}
    return [
        ("ReduceMean", ["x"], "m", mean), ("Sub", ["x", "m"], "d"), ("Pow", ["d", "p"], "q"), ("ReduceMean", ["q"], "v", mean),
        ("Add", ["v", "e"], "w"), ("Sqrt", ["w"], "s"), ("Div", ["d", "s"], "n"), ("Mul", ["n", "g"], "h"), ("Add", ["h", "b"], "y"),
    ]  # fmt: skip
