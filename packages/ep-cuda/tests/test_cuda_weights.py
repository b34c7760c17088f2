"""Products of floats by dequantized weights of few bits: which are found, and what they compute, on PoCL in OpenCL's dialect."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from job_models import NARROW, on_opencl
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxplug.contract import EPFail, TensorSpec
from onnxplug_kernel_text.nodes import weights

KINDS = {"int4": (-8, 8), "uint4": (0, 16), "int2": (-2, 2), "uint2": (0, 4)}
DEPTH, COLUMNS = 70, 9


def model(
    kind: str, scale: tuple[int, ...], *, zeros: bool = True, dtype: str = "float32", rows: Any = "N", **attributes: int
) -> onnx.ModelProto:
    """x (rows, depth) by weights of a kind with scales of a shape."""
    rng, element = np.random.default_rng(0), getattr(ml_dtypes, kind)
    constants = {
        "w": rng.integers(*KINDS[kind], (DEPTH, COLUMNS)).astype(element),
        "s": np.asarray(rng.random(scale) * 0.2 + 0.1).astype(NARROW[dtype]),
        "z": np.asarray(rng.integers(*KINDS[kind], scale)).astype(element),
    }
    names = ["w", "s", *(["z"] if zeros else [])]
    nodes = [
        helper.make_node("DequantizeLinear", names, ["d"], **attributes),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    code = helper.np_dtype_to_tensor_dtype(np.dtype(NARROW[dtype]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", code, [rows, DEPTH])],
        [helper.make_tensor_value_info("y", code, [rows, COLUMNS])], [numpy_helper.from_array(constants[n], n) for n in names],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)


def rows_of(made: onnx.ModelProto, count: int) -> np.ndarray:
    """Its input."""
    dtype = helper.tensor_dtype_to_np_dtype(made.graph.input[0].type.tensor_type.elem_type)
    return np.random.default_rng(1).standard_normal((count, DEPTH)).astype(dtype)


def found_in(made: onnx.ModelProto) -> list[weights.Pattern]:
    models = pytest.importorskip("onnxplug_testkit.models", reason="capability: onnxplug-testkit")
    return list(weights.patterns(models.graph_of(made), lambda node: False))


SCALES: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "blocks": ((5, COLUMNS), {"axis": 0, "block_size": 16}),
    "columns": ((COLUMNS,), {"axis": 1}),
    "one": ((), {}),
}


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_read_as_they_are_packed(kind: str, scales: str, zeros: bool) -> None:
    shape, attributes = SCALES[scales]
    made = model(kind, shape, zeros=zeros, **attributes)
    (found,) = found_in(made)
    for count in (2, 30):
        x = rows_of(made, count)
        spec = TensorSpec(np.dtype(np.float32), (count, COLUMNS))
        job = weights.lowered(found, {"x": TensorSpec(x.dtype, x.shape), "y": spec})
        (got,) = on_opencl(job, [x, *found.constants.values()], [spec])
        plain = found.constants[next(iter(found.constants))]
        assert got is not None and plain.nbytes <= COLUMNS * 80 * found.attributes["bits"] // 8
        (wanted,) = _by_numpy(made, x)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def _by_numpy(made: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    """What the model gives; blocks of which the last is cut are spread by hand, as onnx's evaluation knows none."""
    constants = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    (block,) = [a.i for a in made.graph.node[0].attribute if a.name == "block_size"] or [0]
    w, s = constants["w"].astype(np.float64), constants["s"].astype(np.float64)
    z = constants["z"].astype(np.float64) if "z" in constants else np.zeros_like(s)
    if block:
        s, z = (np.repeat(part, block, axis=0)[:DEPTH] for part in (s, z))
    return [x.astype(np.float64) @ ((w - z) * s)]


def test_whole_blocks_are_what_onnx_gives() -> None:
    made = model("int4", (7, COLUMNS), axis=0, block_size=10)
    assert found_in(made) == []  # a word would lie in two blocks
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": (x := rows_of(made, 2))})
    np.testing.assert_allclose(_by_numpy(made, x)[0], wanted, rtol=1e-5, atol=1e-5)


def test_what_is_left_alone() -> None:
    assert found_in(model("int4", (DEPTH,), axis=0)) == []  # a scale for each row
    assert found_in(model("int4", (DEPTH, 3), axis=1, block_size=3)) == []
    made = model("int4", (COLUMNS,), axis=1)
    made.graph.output.append(helper.make_tensor_value_info("d", TensorProto.FLOAT, [DEPTH, COLUMNS]))
    assert found_in(made) == []


def test_a_factor_that_does_not_fit_is_refused() -> None:
    (found,) = found_in(model("uint4", (), rows="N"))
    with pytest.raises(EPFail, match=r"MatMul of y: \(2, 69\) is not multiplied by \(70, 9\)"):
        weights.lowered(found, {n: TensorSpec(np.dtype(np.float32), s) for n, s in (("x", (2, 69)), ("y", (2, 9)))})
