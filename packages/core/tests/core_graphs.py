"""Models for tests: written in ONNX's text form, or drawn at random; and what onnx's own evaluator makes of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from onnxplug.run.plans import Plans

Dims = tuple[Any, ...]
"""Dimensions of a drawn value: numbers, or ("N", k) for k times the free dimension."""
ROW = (("N", 1), 4)


def model(text: str, version: int = 21) -> bytes:
    """A model from the text of its graph (and functions behind it)."""
    return parser.parse_model(f'<ir_version: 9, opset_import: ["": {version}, "local": 1]> {text}').SerializeToString()


def expected(source: bytes, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The results of onnx's reference evaluator."""
    proto = ModelProto.FromString(source)
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(proto).run(None, dict(feeds)))


def same(results: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Assert equal results: shapes, dtypes and bits (NaN equals NaN)."""
    assert len(results) == len(wanted)
    for result, want in zip(results, wanted, strict=True):
        want = np.asarray(want)
        assert (result.shape, result.dtype) == (want.shape, want.dtype)
        np.testing.assert_array_equal(result, want)


@contextmanager
def plans(specialised: bool) -> Iterator[None]:
    """Plans made to measure, or the shape-generic one from the first run on."""
    deserves = Plans._deserves_plan if specialised else (lambda self, key: False)
    with mock.patch.object(Plans, "_deserves_plan", deserves):
        yield


def row(n: int, seed: int = 0) -> np.ndarray:
    """A feed of shape (n, 4): small whole numbers, so that float arithmetic is exact whatever its order."""
    return np.random.default_rng(seed).integers(-3, 4, (n, 4)).astype(np.float32)


@dataclass
class Drawn:
    """A random model: nodes are named n0, n1, ...; inputs x and y are float[N, 4]."""

    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, Dims | None] = field(default_factory=lambda: {"x": ROW, "y": ROW})
    outputs: list[str] = field(default_factory=list)

    def add(self, op: str, inputs: Sequence[str], dims: Dims | None, outputs: int = 1, **attributes: Any) -> str:
        """Append a node; the name of its first output. ``dims`` None: known only when it runs."""
        number = len(self.nodes)
        names = [f"v{number}" if i == 0 else f"v{number}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"n{number}", **attributes))
        self.shapes.update(dict.fromkeys(names, dims))
        return names[0]

    def constant(self, array: Any) -> str:
        """The name of a constant."""
        array = np.asarray(array)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def bytes(self, version: int = 21) -> bytes:
        """The serialized model."""
        graph = helper.make_graph(
            self.nodes,
            "drawn",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy"],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9)
        return made.SerializeToString()


ELEMENTWISE = ("Add", "Sub", "Max", "Min", "Neg", "Abs", "Relu", "Identity", "MatMul")
MOVING = ("Transpose", "Reshape", "Flatten", "Unsqueeze", "Concat", "Split", "Slice", "DynamicReshape", "Gather")
DATA_DEPENDENT = ("NonZero",)


@st.composite
def drawn_models(
    draw: st.DrawFn, kinds: Sequence[str] = (*ELEMENTWISE, *MOVING, *DATA_DEPENDENT), nodes: int = 14
) -> Drawn:
    """A random model of these operators; outputs are a few of its values, the last one among them."""
    made = Drawn()
    for _ in range(draw(st.integers(1, nodes))):
        _grow(made, draw(st.sampled_from(list(kinds))), draw)
    values = [name for name in made.shapes if name.startswith("v")]
    chosen = draw(st.lists(st.sampled_from(values), max_size=3, unique=True))
    made.outputs = list(dict.fromkeys([*chosen, values[-1]]))
    return made


def _grow(made: Drawn, kind: str, draw: st.DrawFn) -> None:
    pick = draw(st.sampled_from(list(made.shapes)))
    dims = made.shapes[pick]
    if kind in ("Neg", "Abs", "Relu", "Identity") or dims is None:
        made.add(kind if kind in ("Neg", "Abs", "Relu", "Identity") else "Neg", [pick], dims)
    elif kind in ("Add", "Sub", "Max", "Min"):
        partners = [n for n, d in made.shapes.items() if d == dims]
        made.add(kind, [pick, draw(st.sampled_from(partners))], dims)
    elif kind == "MatMul":
        if dims[-1] != 4:
            return
        made.add("MatMul", [pick, made.constant(np.eye(4, dtype=np.float32)[::-1].copy())], dims)
    elif kind == "Transpose":
        perm = draw(st.permutations(range(len(dims))))
        made.add("Transpose", [pick], tuple(dims[p] for p in perm), perm=list(perm))
    elif kind == "NonZero":
        where = made.add("NonZero", [pick], None)
        del made.shapes[where]
        kept = made.add("GatherND", [pick, made.add("Transpose", [where], None)], None)
        del made.shapes[f"v{len(made.nodes) - 2}"]
        assert kept in made.shapes
    else:
        _move(made, kind, pick, dims, draw)


def _move(made: Drawn, kind: str, pick: str, dims: Dims, draw: st.DrawFn) -> None:
    numbers = [d for d in dims if isinstance(d, int)]
    if kind == "Flatten":
        axis = draw(st.integers(0, len(dims)))
        sides = (_product(dims[:axis]), _product(dims[axis:]))
        made.add("Flatten", [pick], None if None in sides else sides, axis=axis)
    elif kind == "Unsqueeze" and len(dims) < 4:
        axis = draw(st.integers(0, len(dims)))
        made.add("Unsqueeze", [pick, made.constant([axis])], (*dims[:axis], 1, *dims[axis:]))
    elif kind == "Concat":
        axis = draw(st.integers(0, len(dims) - 1))
        other = draw(st.sampled_from([n for n, d in made.shapes.items() if d == dims]))
        dim = dims[axis]
        twice = 2 * dim if isinstance(dim, int) else ("N", 2 * dim[1])
        made.add("Concat", [pick, other], (*dims[:axis], twice, *dims[axis + 1 :]), axis=axis)
    elif kind == "Split" and 4 in dims:
        axis = dims.index(4)
        made.add("Split", [pick], (*dims[:axis], 2, *dims[axis + 1 :]), outputs=2, axis=axis, num_outputs=2)
    elif kind == "Slice":
        flip = [np.array([v], np.int64) for v in (-1, np.iinfo(np.int64).min, 0, -1)]
        made.add("Slice", [pick, *map(made.constant, flip)], dims)
    elif kind == "Gather" and numbers and 4 in dims:
        made.add("Gather", [pick, made.constant([3, 1, 0, 2])], dims, axis=dims.index(4))
    elif kind in ("Reshape", "DynamicReshape") and len(dims) == 2 and dims[1] == 4 and not isinstance(dims[0], int):
        target = (dims[0], 2, 2)
        if kind == "Reshape":
            made.add("Reshape", [pick, made.constant([-1, 2, 2])], target)
            return
        shape = made.add("Shape", [pick], None)
        first = made.add("Gather", [shape, made.constant([0])], None, axis=0)
        whole = made.add("Concat", [first, made.constant([2, 2])], None, axis=0)
        for name in (shape, first, whole):
            del made.shapes[name]
        made.add("Reshape", [pick, whole], target)


def _product(dims: Dims) -> Any:
    """The product of dimensions; None when the free one is in it twice."""
    number, free = 1, 0
    for dim in dims:
        if isinstance(dim, int):
            number *= dim
        else:
            number, free = number * dim[1], free + 1
    if free > 1:
        return None
    return ("N", number) if free else number


@contextmanager
def plain_program() -> Iterator[None]:
    """No handlers on the root logger, as in a plain program, and the process's severity put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("onnxplug")
    handlers, level = root.handlers[:], ours.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        ours.setLevel(level)
