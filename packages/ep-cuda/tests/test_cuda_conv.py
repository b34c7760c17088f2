"""Regions of convolutions without a GPU: what they hold, how they are laid out and fused, and what they compute."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from cuda_conv_models import BODIES, OUTPUTS, graph_of, lowered, model, run
from nvrtc_compile import ARCHITECTURES, ptx, spills
from onnx.reference import ReferenceEvaluator

from onnxplug.contract import TensorSpec
from onnxplug_ep_cuda.conv.columns import by_columns
from onnxplug_ep_cuda.conv.groups import conv_groups
from onnxplug_ep_cuda.conv.problem import Convolution
from onnxplug_ep_cuda.conv.program import Convolve, Kernels, Program
from onnxplug_kernel_text.cuda import PRELUDE
from onnxplug_kernels.ops.conv_transpose import conv_transpose

DTYPES = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def values(name: str, x: np.ndarray) -> dict[str, np.ndarray]:
    """Every value of a model of floats, computed node by node in float64."""
    made = onnx.ModelProto()
    made.CopyFrom(model(name))
    del made.graph.output[:]
    names = [o for node in made.graph.node for o in node.output]
    for tensor in made.graph.initializer:
        wide = onnx.numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(onnx.numpy_helper.from_array(wide, tensor.name))
    double = onnx.helper.make_tensor_value_info
    made.graph.input[0].CopyFrom(double("x", onnx.TensorProto.DOUBLE, list(x.shape)))
    made.graph.output.extend(double(n, onnx.TensorProto.DOUBLE, None) for n in names)
    found = ReferenceEvaluator(made).run(None, {"x": x.astype(np.float64)})
    return dict(zip(names, map(np.asarray, found), strict=True))


def convolutions(found: Program) -> list[Convolve]:
    return [step for step in found.steps if isinstance(step, Convolve)]


def sized(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """An image's shape for a model, which may be over lines or volumes."""
    return {"line": shape[:3], "volume": (*shape[:2], 4, *shape[3:], 5)}.get(name.split()[-1], shape)


def image(shape: tuple[int, ...] = (2, 6, 9, 11), dtype: str = "float") -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(DTYPES[dtype])


@pytest.mark.parametrize("shape", [(2, 6, 9, 11), (1, 6, 5, 5)])
@pytest.mark.parametrize("name", BODIES)
def test_programs_compute_what_the_nodes_do(name: str, shape: tuple[int, ...]) -> None:
    x = image(sized(name, shape))
    wanted = values(name, x)
    shapes = {"x": x.shape, **{n: v.shape for n, v in wanted.items()}}
    found, graph = lowered(name, x, shapes)
    results = run(found, graph, x, shapes)
    assert set(results) == set(OUTPUTS.get(name, ("z",)))
    for output, got in results.items():
        right = wanted[output]  # sums of at most 54 products a convolution, at most two of them: some 200 roundings
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5 * np.abs(right).max())


def test_transposed_convolutions_in_groups() -> None:
    """By columns, as where cuDNN has no plan, against the portable kernel: onnx's evaluator has no groups here."""
    rng = np.random.default_rng(2)
    x, w = image((2, 6, 5, 4)), rng.standard_normal((6, 2, 3, 2)).astype(np.float32)
    given = {"group": 3, "strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]}
    text = '<ir_version: 10, opset_import: ["" : 22]> g (float[2, 6, 5, 4] x, float[6, 2, 3, 2] w) => (float[A, B, C, D] y)'
    made = onnx.parser.parse_model(text + "{ y = ConvTranspose(x, w) }")
    made.graph.node[0].attribute.extend(onnx.helper.make_attribute(n, a) for n, a in given.items())
    models = pytest.importorskip("onnxplug_testkit.models", reason="capability: onnxplug-testkit")
    (node,) = models.graph_of(made).nodes
    conv = Convolution.of(node, *(TensorSpec(a.dtype, a.shape) for a in (x, w)), bias=False)
    wanted = conv_transpose(np, x, w, **given)
    assert conv.y == wanted.shape and conv.groups == 3
    got = by_columns(np, conv, x.transpose(0, 2, 3, 1), w.transpose(0, 2, 3, 1), None, None)
    np.testing.assert_array_equal(got.transpose(0, 3, 1, 2), wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_after_each_step(dtype: str) -> None:
    x = image(dtype=dtype)
    wanted = values("residual", x)
    shapes = {"x": x.shape, **{n: v.shape for n, v in wanted.items()}}
    found, graph = lowered("residual", x, shapes, dtype)
    right = wanted["z"]
    # Two roundings of 54 factors each and of weights: a few units at the magnitude of the largest.
    unit = float(ml_dtypes.finfo(x.dtype).eps)
    got = run(found, graph, x, shapes)["z"].astype(np.float64)
    np.testing.assert_allclose(got, right, atol=4 * unit * np.abs(right).max())


def test_bias_residual_and_activation_are_the_convolutions_own() -> None:
    x = image()
    shapes = {"x": x.shape, **dict.fromkeys("arcsz", x.shape)}
    first, second = convolutions(lowered("residual", x, shapes)[0])
    assert first.problem.bias and not first.problem.residual and first.problem.clip is not None
    assert second.residual == "x" and second.problem.clip is not None and second.y == "z"
    assert len(lowered("residual", x, shapes)[0].steps) == 4  # in, two convolutions, out


def test_the_later_of_two_summands_takes_the_sum() -> None:
    x = image((1, 6, 8, 8))
    shapes = {"x": x.shape, **dict.fromkeys("acsz", (1, 6, 4, 4))}
    first, second = convolutions(lowered("downsampling", x, shapes)[0])
    assert not first.problem.residual and second.residual == "a"
    assert second.problem.clip is not None and (second.problem.clip.low, second.problem.clip.high) == (0.0, 6.0)


def test_a_value_that_others_read_is_not_fused_away() -> None:
    x = image()
    (only,) = convolutions(lowered("twice", x, {"x": x.shape, **dict.fromkeys("azu", x.shape)})[0])
    assert only.y == "a" and only.problem.clip is None


def test_nothing_runs_for_an_empty_batch() -> None:
    x = image((0, 6, 5, 5))
    assert lowered("residual", x, {"x": x.shape, **dict.fromkeys("arcsz", x.shape)})[0].steps == ()


def test_regions_end_at_other_shapes_and_types() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1, 6, H, W] x, float[6, 6, 1, 1] k) => (float[N, M] z, float[1, 6, P, Q] y)'
        "{ a = Conv(x, v1) r = Relu(a) f = Flatten(r) z = Neg(f) y = Conv(x, k) }"
    )
    made = onnx.parser.parse_model(text)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((6, 6, 1, 1), np.float32), "v1"))
    models = pytest.importorskip("onnxplug_testkit.models", reason="capability: onnxplug-testkit")
    (group,) = conv_groups(models.graph_of(made), lambda node: False)
    assert [node.op_type for node in group] == ["Conv", "Relu"]  # not the convolution whose weights are an input
    assert conv_groups(graph_of("residual"), lambda node: True) == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_compiles_the_kernels_of_regions_without_spills(architecture: str, tmp_path: Path) -> None:
    x, texts = image(), []
    for dtype in DTYPES:
        for number, name in enumerate(("pooled", "excited", "mobile")):
            wanted = values(name, x)
            shapes = {"x": x.shape, **{n: v.shape for n, v in wanted.items()}}
            found, _ = lowered(name, x.astype(DTYPES[dtype]), shapes, dtype)
            for at, step in enumerate(s for s in found.steps if isinstance(s, Kernels)):
                text = step.text
                for call in {c.name for c in step.calls}:
                    text = text.replace(f" {call}(", f" {dtype}{number}_{at}_{call}(")
                texts.append(text)
    found_spills = spills(ptx(PRELUDE + "\n".join(texts), architecture), architecture, tmp_path)
    assert len(found_spills) >= len(texts) and set(found_spills) == {0}
