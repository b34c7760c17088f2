"""Models with functions of their own, and what each has to compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import ModelProto, parser


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
