"""Chains of element-wise operators: what is fused, what the programs compute (in their OpenCL dialect, on PoCL), and that NVRTC makes
them machine code without spills."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from chain_models import MODELS, SIZES, feeds, on_opencl, programs, proto
from nvrtc_compile import ARCHITECTURES, ptx, spills
from onnx.reference import ReferenceEvaluator

from onnxplug_ep_cuda.codegen.chains import chains
from onnxplug_kernel_text.cuda import PRELUDE

# Relative to each result's magnitude: a chain rounds float16 and bfloat16 once, at its end, the reference after each of its nodes.
TOLERANCES = {"half": 4e-3, "bfloat": 3e-2}


@pytest.mark.parametrize("sizes", [SIZES, {"B": 1, "S": 1}, {"B": 2, "S": 300}], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_programs_compute_what_the_nodes_do(name: str, sizes: dict[str, int]) -> None:
    given = feeds(name, sizes)
    program, constants, graph = programs(name, given)
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(proto(name)).run(None, given)
    results = on_opencl(program, given | constants, graph)
    for got, right in zip(results, wanted, strict=True):
        assert (got.dtype, got.shape) == (right.dtype, np.shape(right))
        rtol = TOLERANCES.get(name, 2e-6)
        got, right = got.astype(np.float64), np.asarray(right).astype(np.float64)
        np.testing.assert_allclose(got, right, rtol=rtol, atol=rtol * max(1.0, np.abs(right).max()))


def test_nodes_of_one_shape_are_one_kernel() -> None:
    assert [len(programs(name, feeds(name, SIZES))[0].calls) for name in ("gelu", "attention_mask", "integers")] == [
        1,
        1,
        1,
    ]
    program, _, _ = programs("two_shapes", feeds("two_shapes", SIZES))
    assert len(program.calls) == 3 and set(program.places) == {"v"}  # u is an output, v waits in scratch memory


def test_constants_of_one_element_are_in_the_text() -> None:
    program, _, _ = programs("gelu", feeds("gelu", SIZES))
    assert program.calls[0].tensors == ("x", "b", "z") and "0.5f" in program.text


def test_nodes_of_a_chain_round_one_by_one() -> None:
    """CUDA's compiler joins a product with the sum that another statement adds to: x * y - x * y would be its rounding error."""
    pytest.importorskip("cupy", reason="capability: CuPy (cupy is not installed)")
    from onnxplug_ep_cuda.codegen.bound import options

    program, _, _ = programs("difference", feeds("difference", SIZES))
    assert len(program.calls) == 1
    joined = re.compile(rb"fma|mul\.(ftz\.)?f32")  # what is not marked ``rn`` the assembler joins
    assert joined.search(ptx(PRELUDE + program.text, "80", options(program.text)[1:])) is None
    assert joined.search(ptx(PRELUDE + program.text, "80")) is not None


def test_powers_of_integers_are_no_part_of_a_chain() -> None:
    """Devices have powers of floats only: of integers they are rounded, and a root of one would be a power of nought."""
    models = pytest.importorskip("onnxplug_testkit.models", reason="capability: onnxplug-testkit")
    made = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int64[S] i, float[S] e) => (int64[S] m) { a = Pow(i, e) b = Neg(a) m = Abs(b) }'
    )
    assert [[n.op_type for n in found] for found in chains(models.graph_of(made), lambda node: False)] == [
        ["Neg", "Abs"]
    ]


def test_nothing_is_launched_for_empty_tensors() -> None:
    program, _, _ = programs("gelu", feeds("gelu", {"B": 0, "S": 5}))
    assert program.calls == () and program.shapes["z"] == (0, 5, 8)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_compiles_every_chain_without_spills(architecture: str, tmp_path: Path) -> None:
    texts = []
    for number, name in enumerate(MODELS):
        program, _, _ = programs(name, feeds(name, SIZES))
        texts.append(program.text.replace(" chain", f" m{number}_chain"))
    found = spills(ptx(PRELUDE + "\n".join(texts), architecture), architecture, tmp_path)
    assert len(found) >= len(MODELS) and set(found) == {0}
