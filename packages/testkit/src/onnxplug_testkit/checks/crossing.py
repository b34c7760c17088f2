"""L3: tensors of all types go from provider to provider, at each edge of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper

from onnxplug_testkit import neighbour
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.graph import agree
from onnxplug_testkit.checks.patterns import behind
from onnxplug_testkit.models import OPSET, expected, open_session
from onnxplug_testkit.subject import Subject

SIDE = 6
"""Rows and columns of the board."""
SHAPES = ((3, 5), (1, 1), (0, 5), (65, 33))
BOARDS: tuple[tuple[type, Sequence[str]], ...] = (
    (np.float32, ("Add", "Sub")), (np.int64, ("Add", "Sub")), (np.int64, ("Max", "Min")), (np.int32, ("Add", "Sub")),
    (np.bool_, ("Xor", "Or")), (np.bool_, ("And", "Equal")), (np.float16, ("Add", "Sub")), (np.float16, ("Max", "Min")),
    (np.float64, ("Add", "Sub")), (np.uint8, ("Max", "Add")),
)  # fmt: skip
"""Types, and operators of two operands that give the same type."""


@check("graph.checkerboard")
def checkerboard(subject: Subject, seed: int) -> None:
    """Where each node's neighbours are another provider's, integers, truths and halves cross each edge unchanged, both ways."""
    rng = np.random.default_rng(seed)
    ahead = [neighbour.settle_in()]
    met = False
    for dtype, made in _boards():
        with open_session(subject, made, *behind(subject), ahead=ahead) as session:
            owners = session.placement()
            if subject.name not in owners.values():
                continue
            assert neighbour.NAME in owners.values(), f"{neighbour.NAME} has no node of {sorted(owners)[:4]}"
            met = True
            for shape in SHAPES:
                feeds = {name: _drawn(rng, dtype, shape) for name in ("x", "z")}
                what = f"{np.dtype(dtype).name} {'x'.join(map(str, shape))} between {subject.name} and another"
                got, want = session.run(None, feeds), expected(made, feeds, subject.name)
                agree(got, want, what=what)
                exact = np.dtype(dtype).kind != "f"
                assert not exact or all(map(np.array_equal, got, want)), f"{what}: a result differs"
    if not met:
        raise Unsupported("operators", "of no type an operator of two operands is claimed")


def _boards() -> Iterator[tuple[type, onnx.ModelProto]]:
    for dtype, operators in BOARDS:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

        def value(row: int, column: int) -> str:
            return f"v{row}_{column}" if row >= 0 and column >= 0 else "x" if column < 0 else "z"

        nodes = [
            helper.make_node(
                operators[row % len(operators)],
                [value(row - 1, column), value(row, column - 1)],
                [value(row, column)],
                f"n{row}_{column}_{'ab'[(row + column) % 2]}",
            )
            for row in range(SIDE)
            for column in range(SIDE)
        ]
        outputs = [value(SIDE - 1, n) for n in range(SIDE)] + [value(n, n) for n in range(SIDE - 1)]
        inputs = [helper.make_tensor_value_info(name, element, ["n", "m"]) for name in ("x", "z")]
        infos = [helper.make_tensor_value_info(name, element, None) for name in outputs]
        graph = helper.make_graph(nodes, "board", inputs, infos)
        yield dtype, helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def _drawn(rng: np.random.Generator, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers whose sums and differences over the board are exact; integers of 64 bits that no double holds."""
    if np.dtype(dtype).kind == "f":
        return rng.integers(-2, 3, shape).astype(dtype)
    if dtype is np.int64:
        return rng.integers(2**53, 2**54, shape, dtype=np.int64)
    return rng.integers(0, 2 if dtype is np.bool_ else 100, shape).astype(dtype)
