"""Batches of any size: what classic models do is lowered for a few of them only."""

from __future__ import annotations

from typing import Any
from unittest import mock

import ml_models
import numpy as np
import pytest
from codegen_models import model, row, session
from onnx import ModelProto, helper

from onnxplug_ep_cpu.codegen import program
from onnxplug_ep_cpu.codegen.kernels.gemm import Gemm
from onnxplug_ep_cpu.codegen.region import NativeRegion

WIDTH, TREES = 8, 9
X = row(70 * WIDTH).reshape(70, WIDTH)


def _biased_product() -> ModelProto:
    """As of k-means: a row of numbers is added to each of a product's rows."""
    node = helper.make_node("Gemm", ["x0", "w", "c"], ["y0"], transB=1)
    constants = {"w": row(5 * WIDTH, 1).reshape(5, WIDTH), "c": row(5, 2).reshape(1, 5)}
    return model([node], {"x0": X}, ["y0"], constants, symbolic=True)


def _stumps() -> ModelProto:
    """Trees of two leaves each."""
    votes: dict[str, Any] = {
        "target_treeids": np.repeat(range(TREES), 2).tolist(), "target_nodeids": [1, 2] * TREES,
        "target_ids": [0] * 2 * TREES, "target_weights": row(2 * TREES, 3).tolist(),
    }  # fmt: skip
    return ml_models.model(
        "TreeEnsembleRegressor", [X], n_targets=1, nodes_treeids=np.repeat(range(TREES), 3).tolist(),
        nodes_nodeids=[0, 1, 2] * TREES, nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * TREES,
        nodes_featureids=[n % WIDTH for n in range(TREES) for _ in range(3)], nodes_values=row(3 * TREES, 4).tolist(),
        nodes_truenodeids=[1, 0, 0] * TREES, nodes_falsenodeids=[2, 0, 0] * TREES, **votes,
    )  # fmt: skip


def _support_vectors() -> ModelProto:
    return ml_models.model(
        "SVMRegressor", [X], support_vectors=row(6 * WIDTH, 5).tolist(), coefficients=row(6, 6).tolist(), n_supports=6,
        rho=[0.5], kernel_type="RBF", kernel_params=[0.1, 0.0, 2.0],
    )  # fmt: skip


def _deviation() -> ModelProto:
    """Unbiased, as exported: a mean times the number of rows, over one less."""
    n = helper.make_node
    nodes = [
        n("ReduceMean", ["x0", "first"], ["m"]), n("Sub", ["x0", "m"], ["d"]), n("Mul", ["d", "d"], ["s"]),
        n("ReduceMean", ["s", "first"], ["v"]), n("Shape", ["x0"], ["dims"], start=0, end=1), n("Cast", ["dims"], ["n"], to=1),
        n("Sub", ["n", "one"], ["less"]), n("Mul", ["v", "n"], ["all"]), n("Div", ["all", "less"], ["u"]), n("Sqrt", ["u"], ["y0"]),
    ]  # fmt: skip
    return model(nodes, {"x0": X}, ["y0"], {"one": np.ones((), np.float32), "first": np.array([0])}, symbolic=True)


def _likeness() -> ModelProto:
    return model(
        [helper.make_node("Einsum", ["x0", "x0"], ["y0"], equation="ij,kj->ik")], {"x0": X}, ["y0"], symbolic=True
    )


@pytest.mark.parametrize("make", [_biased_product, _stumps, _support_vectors, _deviation, _likeness])
def test_batches_of_any_size_are_lowered_a_few_times_only(make: Any) -> None:
    """Results of rows are those that NumPy's kernels have for them: sums of ten products of numbers below four."""
    proto = make()
    made, plain = session(proto), session(proto, codegen=False)
    with mock.patch.object(NativeRegion, "_lowered", autospec=True, side_effect=NativeRegion._lowered) as lowered:
        for rows in np.random.default_rng(0).permutation(np.arange(70, 500))[:40].tolist():
            x = row(rows * WIDTH, rows).reshape(rows, WIDTH)
            (got,), (wanted,) = made.run(None, {"x0": x}), plain.run(None, {"x0": x})
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert 0 < lowered.call_count < 12


def test_trees_take_three_programs_for_all_batches_beyond_a_block() -> None:
    """By tree, in blocks of rows, and in blocks of which the last lies over the one before."""
    made, plain = session(proto := _stumps()), session(proto, codegen=False)
    with mock.patch.object(NativeRegion, "_lowered", autospec=True, side_effect=NativeRegion._lowered) as lowered:
        for rows in np.random.default_rng(0).permutation(np.arange(8, 60)).tolist():
            x = row(rows * WIDTH, rows).reshape(rows, WIDTH)
            (got,), (wanted,) = made.run(None, {"x0": x}), plain.run(None, {"x0": x})
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    assert lowered.call_count <= 4  # the first batch is lowered before there is anything to follow


def test_images_of_any_number_have_the_same_kernels() -> None:
    """Of a size that the model tells."""
    node, w = helper.make_node("Conv", ["x", "w"], ["y"]), row(128 * 64, 1).reshape(128, 64, 1, 1)
    proto = model([node], {"x": np.zeros((1, 64, 7, 7), np.float32)}, ["y"], {"w": w}, symbolic=True)
    for at, size in enumerate((64, 7, 7), 1):
        proto.graph.input[0].type.tensor_type.shape.dim[at].dim_value = size
    made, plain = session(proto), session(proto, codegen=False)
    with mock.patch.object(program.Program, "call", autospec=True, side_effect=program.Program.call) as called:
        for count in (1, 2, 5, 9, 16, 30):
            x = row(count * 64 * 7 * 7, count).reshape(count, 64, 7, 7)
            np.testing.assert_allclose(made.run(None, {"x": x})[0], plain.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)
    assert len({each.args[1] for each in called.call_args_list if isinstance(each.args[1], Gemm)}) == 1


def test_images_that_are_high_take_the_program_of_those_that_are_wide() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2])
    images = [row(5 * h * w, h).reshape(1, 5, h, w) for h, w in ((41, 61), (45, 67), (71, 43))]
    proto = model([node], {"x": images[0]}, ["y"], symbolic=True)
    made, plain = session(proto), session(proto, codegen=False)
    with mock.patch.object(NativeRegion, "_lowered", autospec=True, side_effect=NativeRegion._lowered) as lowered:
        for x in images:
            np.testing.assert_array_equal(made.run(None, {"x": x})[0], plain.run(None, {"x": x})[0])
    assert lowered.call_count == 2


def test_buffers_of_a_small_program_are_laid_out_a_few_times_only() -> None:
    """Smaller ones lie where larger ones did."""
    nodes = [helper.make_node("Softmax", ["x"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["b"])]
    nodes += [helper.make_node("Softmax", ["b"], ["c"], axis=0), helper.make_node("MatMul", ["c", "w"], ["y"])]
    proto = model(nodes, {"x": X}, ["y"], {"w": row(WIDTH * WIDTH, 1).reshape(WIDTH, WIDTH)}, symbolic=True)
    made, plain = session(proto), session(proto, codegen=False)
    with mock.patch.object(program, "assign_offsets", side_effect=program.assign_offsets) as laid:
        for rows in np.random.default_rng(0).permutation(np.arange(70, 500))[:40].tolist():
            x = row(rows * WIDTH, rows).reshape(rows, WIDTH)
            (got,), (wanted,) = made.run(None, {"x": x}), plain.run(None, {"x": x})
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert 0 < laid.call_count < 10
