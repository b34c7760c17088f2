"""Common operators in one session whose dimensions are symbols, from one element to some hundreds along each axis.

Structures of tests are small. What goes wrong beyond a vector's width, a block or a byte's range, and what was planned for an earlier
shape, shows here.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import CheckFailed, fail
from onnxplug_testkit.kernels.cells import Claimed, label
from onnxplug_testkit.kernels.compare import compare
from onnxplug_testkit.kernels.legal import is_legal
from onnxplug_testkit.kernels.oracle import Oracle, oracles
from onnxplug_testkit.kernels.precision import Precision, precision
from onnxplug_testkit.kernels.retarget import type_proto
from onnxplug_testkit.kernels.trial import Outcome, number_of
from onnxplug_testkit.models import open_session
from onnxplug_testkit.subject import Subject

SIZES = ((3, 5), (1, 1), (67, 33), (2, 601), (259, 2), (8, 16), (1, 17), (3, 5))
"""Values of the two sizes M and N that shapes are made of, run after run."""
LARGE = ((65537, 1), (1, 65539))
"""More rows, and more elements of a row, than sixteen bits count: for forms that add up nothing, or nothing along the rows."""

Shape = tuple[int | str, ...]
"""Of numbers and expressions in M and N."""


@dataclass(frozen=True)
class Form:
    """A node. ``operands``: shapes; ``fixed``: initializers of int64 behind them; ``types``: what operands hold besides floats.
    ``slope``: by how much each element is larger than the one before, so that the greatest or the least is the last. ``spread``:
    how far neighbours are apart, so that no row is as good as constant, when its variance is all rounding.
    ``large``: how many of ``LARGE`` it is tried with."""

    operands: Sequence[Shape]
    attributes: Mapping[str, Any]
    fixed: Sequence[np.ndarray] = ()
    low: float = -2.0
    types: Sequence[str] = ()
    outputs: int = 1
    slope: float = 0
    spread: float = 0
    large: int = 0


_MN: Shape = ("M", "N")
_IMAGE: Shape = (2, "M", 7, "N")


def _forms() -> Iterator[tuple[str, Form]]:
    for op_type in (
        "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Mish", "Neg",
        "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Tanh", "IsNaN", "NonZero", "Flatten", "GlobalMaxPool",
        "GlobalAveragePool", "Shape", "Size",
    ):  # fmt: skip
        pools = op_type.startswith("Global")
        yield op_type, Form([_IMAGE if pools else _MN], {}, large=0 if pools else 2)
    for op_type in ("Sqrt", "Log", "Reciprocal", "Gelu"):  # which cancels below zero
        yield op_type, Form([_MN], {}, low=0.25)
    for op_type in (
        "Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Less", "Greater", "Pow", "PRelu", "Sum", "Mean",
    ):  # fmt: skip
        low = 0.5 if op_type in ("Div", "Pow") else -2.0
        yield op_type, Form([_MN, _MN], {}, low=low, large=2)
        yield op_type, Form([_MN, ("N",)], {}, low=low)
        yield op_type, Form([(2, "M", "N"), ("M", 1)], {}, low=low)
    yield "Where", Form([_MN, ("M", 1)], {}, types=["bool"], large=2)
    yield "MatMul", Form([_MN, ("N", "M + 1")], {})
    yield "MatMul", Form([(2, 3, "M", "N"), ("N", 3)], {})
    yield "Gemm", Form([_MN, ("M + 1", "N"), ("M + 1",)], {"transB": 1, "alpha": 0.5})
    yield "Conv", Form([_IMAGE, (5, "M", 3, 3)], {"pads": [1, 1, 1, 1]})
    yield "Conv", Form([_IMAGE, ("M", 1, 3, 3), ("M",)], {"pads": [1, 1, 1, 1], "strides": [2, 1], "group": "M"})
    yield "Conv", Form([(1, "N", 3, "M"), (17, "N", 1, 1)], {})
    yield "ConvTranspose", Form([(1, "M", 3, 5), ("M", 2, 3, 3)], {"strides": [2, 2]})
    for op_type in ("MaxPool", "AveragePool"):
        yield op_type, Form([_IMAGE], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]})
    for op_type in ("Softmax", "LogSoftmax"):
        for axis in (0, -1):
            yield op_type, Form([_MN], {"axis": axis}, large=int(axis == -1))
    for kind in ("Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp", "Prod"):
        for axis in (0, 1):
            yield f"Reduce{kind}", Form([_MN], {}, [np.array([axis])], low=0.9 if kind == "Prod" else -2.0)
    for op_type, slope in (("ArgMax", 1.0), ("ArgMin", -1.0)):
        yield op_type, Form([_MN], {"axis": 1}, slope=slope)
        yield op_type, Form([_MN], {"axis": 0}, slope=slope)
    yield "TopK", Form([_MN], {}, [np.array([1])], outputs=2, slope=1.0)
    yield "CumSum", Form([_MN], {}, [np.array(1)])
    yield "Transpose", Form([_MN], {"perm": [1, 0]}, large=2)
    yield "Transpose", Form([(2, "M", 3, "N")], {"perm": [0, 3, 1, 2]})
    yield "Concat", Form([_MN, ("M", 3)], {"axis": 1})
    yield "Slice", Form([_MN], {}, [np.array([-1]), np.array([-9999]), np.array([1]), np.array([-1])])
    yield "Gather", Form([("N", "M"), ("M", 2)], {}, types=["", "indices"])
    yield "Pad", Form([_MN], {}, [np.array([1, 0, 2, 3])])
    yield "Tile", Form([_MN], {}, [np.array([2, 3])])
    yield "Reshape", Form([_MN], {}, [np.array([-1])])
    yield "Unsqueeze", Form([_MN], {}, [np.array([1])])
    yield "Cast", Form([_MN], {"to": 6}, large=2)
    yield "Clip", Form([_MN], {}, large=2)
    yield "LayerNormalization", Form([_MN, ("N",), ("N",)], {"axis": -1}, spread=6.0)
    yield "RMSNormalization", Form([_MN, ("N",)], {"axis": -1})
    yield "BatchNormalization", Form([_IMAGE, ("M",), ("M",), ("M",), ("M",)], {}, low=0.5)
    yield "InstanceNormalization", Form([(2, "M", 7, "N + 1"), ("M",), ("M",)], {}, spread=6.0)


@functools.cache
def forms() -> Mapping[str, Sequence[Form]]:
    """The forms of each operator."""
    found: dict[str, list[Form]] = {}
    for op_type, form in _forms():
        found.setdefault(op_type, []).append(form)
    return found


def sized(claimed: Claimed, schema: Any) -> list[Sized]:
    """The tests of this kind of one schema version."""
    if claimed.key[0] or not schema.inputs:
        return []
    claims_float = "tensor(float)" in claimed.types.get(_parameter(schema), ())
    given = forms().get(claimed.key[1], ()) if claims_float else ()
    found = [Sized(claimed, schema, number, form) for number, form in enumerate(given)]
    return [each for each in found if is_legal(each.model(*SIZES[0], symbols=False), schema)]


def _parameter(schema: Any) -> str:
    return str(schema.inputs[-1 if schema.name == "Where" else 0].type_str)


@dataclass(frozen=True, eq=False)
class Sized:
    """One form of an operator, over ``SIZES``."""

    claimed: Claimed
    schema: Any
    number: int
    form: Form

    @property
    def id(self) -> str:
        """The name of the test."""
        return f"kernels.sizes[{label(self.claimed.key)}-{self.number}]"

    def model(self, m: int, n: int, symbols: bool = True) -> onnx.ModelProto:
        """The model, with dimensions that are symbols or those of one pair of sizes."""
        _, op_type, version = self.claimed.key
        given = [f"x{i}" for i in range(len(self._shapes(m, n)))]
        fixed = {f"p{i}": np.asarray(v, np.int64) for i, v in enumerate(self.form.fixed)}
        outputs = [f"y{i}" for i in range(self.form.outputs)]
        attributes: dict[str, Any] = {k: (m if v == "M" else v) for k, v in self.form.attributes.items()}
        inputs = [
            (name, _type(like), [f"{name}_{i}" for i in range(like.ndim)] if symbols else list(like.shape))
            for name, like in self.feeds(np.random.default_rng(0), m, n).items()
        ]
        graph = helper.make_graph(
            [helper.make_node(op_type, [*given, *fixed], outputs, "node", **attributes)],
            "sizes",
            [helper.make_value_info(name, helper.make_tensor_type_proto(code, shape)) for name, code, shape in inputs],
            [
                helper.make_value_info(name, type_proto(text))
                for name, text in zip(outputs, self._results(), strict=True)
            ],
            [numpy_helper.from_array(value, name) for name, value in fixed.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)

    def feeds(self, rng: np.random.Generator, m: int, n: int) -> dict[str, np.ndarray]:
        """Fresh operands for one pair of sizes."""
        types = [*self.form.types, *[""] * 9]
        return {f"x{i}": self._operand(rng, shape, types[i], n) for i, shape in enumerate(self._shapes(m, n))}

    def run(self, subject: Subject, seed: int) -> Outcome:
        """Judge every pair of sizes, in one session where the subject takes symbols. CheckFailed names the first that is wrong."""
        rng = np.random.default_rng([seed, number_of(self.id)])
        worst, name = 0.0, ""
        with contextlib.ExitStack() as stack:
            judged = (
                None if "M" in self.form.attributes.values() else self._open(stack, subject, *SIZES[0], symbols=True)
            )
            for m, n in (*SIZES, *LARGE[: self.form.large]):
                asked = judged or self._open(stack, subject, m, n, symbols=False)
                if asked is None:
                    return Outcome("declined", text="sizes of this kind are not taken, or no oracle computes them")
                name = asked[1].name
                try:
                    worst = max(worst, self._compare(*asked, self.feeds(rng, m, n)))
                except CheckFailed as error:
                    fail("kernels.sizes", f"at M = {m}, N = {n}: {error}")
                except STATUS_ERRORS as error:
                    fail("kernels.sizes", f"at M = {m}, N = {n} the run fails: {error}")
        return Outcome("passed", name, worst)

    def _open(
        self, stack: contextlib.ExitStack, subject: Subject, m: int, n: int, *, symbols: bool
    ) -> tuple[Any, Oracle] | None:
        """A session and an oracle; None where the subject gives the node up or there is no oracle."""
        made = self.model(m, n, symbols)
        oracle = next(oracles(made, subject.name), None)
        try:
            session = stack.enter_context(open_session(subject, made))
        except STATUS_ERRORS as error:
            fail("kernels.sizes", f"the session cannot be made: {error}")
        taken = session.placement().get("node") == subject.name
        return (session, oracle) if taken and oracle is not None else None

    def _compare(self, session: Any, oracle: Oracle, feeds: dict[str, np.ndarray]) -> float:
        rule = precision(*self.claimed.key)
        wanted, bounds = oracle(feeds), oracle.magnitude(rule, feeds)
        got = session.run(None, feeds)
        slack = oracle.slack * (_of_many(oracle, rule, feeds, wanted) if rule.kind == "sum" else 1.0)
        return max(
            compare(g, w, oracle.rule(rule), magnitude=bounds[i] if bounds is not None else None, slack=slack)
            for i, (g, w) in enumerate(zip(got, wanted, strict=True))
        )

    def _shapes(self, m: int, n: int) -> list[tuple[int, ...]]:
        known = {"M": m, "N": n, "M + 1": m + 1, "N + 1": n + 1}
        return [tuple(known[d] if isinstance(d, str) else d for d in shape) for shape in self._operands()]

    def _operands(self) -> list[Shape]:
        return [_MN, *self.form.operands] if self.claimed.key[1] == "Where" else list(self.form.operands)

    def _operand(self, rng: np.random.Generator, shape: tuple[int, ...], kind: str, n: int) -> np.ndarray:
        if kind == "indices":
            return rng.integers(-n, n, shape)
        if kind == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        places = np.arange(np.prod(shape)).reshape(shape)
        rising = self.form.slope * places + self.form.spread * (places % 7)
        return np.asarray(rng.uniform(self.form.low, 2.0, shape) + rising).astype(np.float32)

    def _results(self) -> list[str]:
        known = {"tensor(float)", "tensor(int64)", "tensor(bool)"}
        first = _parameter(self.schema)
        found = []
        for formal in self.schema.outputs[: self.form.outputs]:
            allowed = {
                t
                for c in self.schema.type_constraints
                if c.type_param_str == formal.type_str
                for t in c.allowed_type_strs
            }
            plain = (
                "tensor(float)" if formal.type_str == first else formal.type_str if formal.type_str in known else None
            )
            found.append(plain or ("tensor(int32)" if self.claimed.key[1] == "Cast" else min(allowed & known)))
        return found


def _of_many(oracle: Oracle, rule: Precision, feeds: Mapping[str, np.ndarray], wanted: Sequence[Any]) -> float:
    """By how much a rule is wider where many terms are added, which may be done one after the other: n terms are then off by
    sqrt(n) eps sum|a||b| at most, as good as always (Higham and Mary, 2019, doi 10.1137/18M1226312)."""
    counted = oracle({name: np.ones_like(value) for name, value in feeds.items()})
    terms = max(float(np.max(value, initial=1)) for value in counted)  # of means 1
    averaged = max(value.size for value in feeds.values()) / max(1, min(np.size(value) for value in wanted))
    return max(1.0, math.sqrt(max(terms, averaged)) / rule.ulp)


def _type(array: np.ndarray) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))
