"""What is declined, with which reason; old versions at their own defaults; failures at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper
from reference_values import download, upload
from reference_views import Graph, make_node

from onnxplug.contract import Claim, Decline, Fail, KernelDef, TensorType
from onnxplug_ep_reference.provider import ReferenceProvider

EMPTY = helper.make_graph([], "empty", [], [])


def node(
    op_type: str,
    opset: int,
    count: int = 1,
    data: tuple[int, ...] | None = None,
    n_outputs: int = 1,
    **attributes: Any,
) -> Any:
    domain = attributes.pop("domain", "")
    names = [f"x{i}" for i in range(count)]
    proto = helper.make_node(op_type, names, [f"y{i}" for i in range(n_outputs)], domain=domain, **attributes)
    return make_node(proto, opset, {"x0": TensorType("float", data)})


def verdict(provider: ReferenceProvider, view: Any) -> Claim | Decline:
    [found] = provider.get_capability(Graph([view]), provider.get_kernel_registry())
    return found


def run(provider: ReferenceProvider, view: Any, *values: Any) -> Any:
    assert isinstance(verdict(provider, view), Claim)
    found = provider.get_kernel_registry().kernel_for(view)
    assert isinstance(found, KernelDef)
    return download(provider, found.create(view)(*[upload(provider, value) for value in values]))


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (node("Softmax", 11), "flattens"),
        (node("Upsample", 7, scales=[1.0, 2.0]), "scales"),
        (node("Add", 6, 2, broadcast=1, axis=1), "axis=1"),
        (node("Dropout", 6), "no version 6"),
        (node("HardSwish", 14), "no class"),
        (node("If", 21, then_branch=EMPTY, else_branch=EMPTY), "core"),
        (node("LSTM", 14, 5, hidden_size=2), "sequence_lens"),
        (node("LSTM", 14, 3, hidden_size=2, activations=["Relu", "Tanh", "Tanh"]), "activations"),
        (node("GRU", 14, 3, hidden_size=2, clip=1.0), "clip"),
        (node("LRN", 13, data=(1, 4, 2, 2), size=3), "channels"),
        (node("LpNormalization", 22, p=1), "p=1"),
        (node("Normalizer", 1, domain="ai.onnx.ml"), "norm=MAX"),
        (node("CastLike", 24, 2, round_mode="down"), "round_mode=down"),
        (node("ConvTranspose", 11, 2, group=2), "groups"),
        (node("MaxPool", 12, kernel_shape=[2, 2], n_outputs=2), "indices"),
        (node("StringNormalizer", 10, locale="de_DE"), "locale"),
        (node("BatchNormalization", 9, 5), "batch statistics"),
        (node("SVMRegressor", 1, domain="ai.onnx.ml", post_transform="LOGISTIC"), "post_transform=LOGISTIC"),
        (node("TreeEnsembleClassifier", 3, domain="ai.onnx.ml", base_values_as_tensor=np.ones(1)), "base_values_as_tensor"),
        (node("TreeEnsembleRegressor", 3, domain="ai.onnx.ml", nodes_values_as_tensor=np.ones(1)), "nodes_values_as_tensor"),
    ],
    ids=lambda value: value.op_type if hasattr(value, "op_type") else "",
)  # fmt: skip
def test_declined(view: Any, words: str, provider: ReferenceProvider) -> None:
    found = verdict(provider, view)
    assert isinstance(found, Decline) and found.node is view
    assert words in found.reason


def test_asking_twice_gives_the_same(provider: ReferenceProvider) -> None:
    graph = Graph([node("Relu", 14), node("Softmax", 11)])
    kernels = provider.get_kernel_registry()
    kinds = [[type(item) for item in provider.get_capability(graph, kernels)] for _ in range(2)]
    assert kinds[0] == kinds[1] == [Claim, Decline]


def test_old_versions_have_their_own_defaults(provider: ReferenceProvider) -> None:
    x = np.array([-1.0, 2.0], np.float32)
    old = run(provider, node("Selu", 1), x)
    np.testing.assert_allclose(old, np.where(x > 0, 1.0507 * x, 1.0507 * (1.6732 * np.exp(x) - 1.6732)), rtol=1e-6)
    old = run(provider, node("Relu", 1, consumed_inputs=[0]), x)
    np.testing.assert_array_equal(old, [0, 2])


def test_early_broadcasting_without_an_axis_is_numpys(provider: ReferenceProvider) -> None:
    got = run(provider, node("Add", 6, 2, broadcast=1), np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32))
    np.testing.assert_array_equal(got, [[1, 2, 3], [1, 2, 3]])


@pytest.mark.parametrize(("version", "broadcast"), [(6, {"broadcast": 0}), (6, {"broadcast": 1}), (7, {})])
def test_beta_counts_and_integers_keep_all_digits(
    version: int, broadcast: dict[str, int], provider: ReferenceProvider
) -> None:
    ones = np.ones((1, 1), np.float32)
    assert run(provider, node("Gemm", version, 3, beta=1.5, **broadcast), ones, ones, ones) == [[2.5]]
    if version > 6:
        large = np.array([[2**53 + 1, 1]])
        got = run(provider, node("Gemm", version, 3, beta=-2.0), large, np.array([[1], [2]]), np.array([3]))
        assert got.tolist() == [[2**53 - 3]]


def test_a_depth_may_be_a_tensor_of_one_element(provider: ReferenceProvider) -> None:
    got = run(provider, node("OneHot", 11, 3), np.array([0, -1]), np.array([3]), np.array([2, 5], np.float32))
    np.testing.assert_array_equal(got, [[5, 2, 2], [2, 2, 5]])


def test_pads_may_crop(provider: ReferenceProvider) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = run(provider, node("Pad", 11, 2, mode="edge"), x, np.array([-1, 0, 0, 1]))
    np.testing.assert_array_equal(got, np.pad(x[1:], [(0, 0), (0, 1)], "edge"))
    got = run(provider, node("Pad", 18, 4), x, np.array([1, -3]), None, np.array([-1]))
    np.testing.assert_array_equal(got, np.pad(x, [(0, 0), (1, 0)])[:, :-3])


def test_windows_over_the_edge_sum_what_is_there(provider: ReferenceProvider) -> None:
    got = run(
        provider, node("LpPool", 18, kernel_shape=[2], strides=[2], ceil_mode=1, p=1), np.ones((1, 1, 5), np.float32)
    )
    np.testing.assert_array_equal(got, [[[2, 2, 1]]])


@pytest.mark.parametrize("ignored", [None, -1, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_loss_is_finite_where_a_probability_is_none(
    ignored: int | None, weighted: bool, provider: ReferenceProvider
) -> None:
    x = np.array([[0, 1000, 0], [500, 0, 1], [2, 3, 700]], np.float32)
    labels = np.array([0, 1, 2 if ignored is None else ignored])
    weights = np.array([0.5, 2, 3] if weighted else [1, 1, 1], np.float32)
    counted = weights[labels] * (labels != ignored)
    told = {} if ignored is None else {"ignore_index": ignored}
    given = [x, labels, *([weights] if weighted else [])]
    got = run(provider, node("SoftmaxCrossEntropyLoss", 13, len(given), **told), *given)
    np.testing.assert_allclose(got, counted @ [1000, 500, 0] / counted.sum(), rtol=1e-6)


def test_limits_of_boxes_may_be_left_out(provider: ReferenceProvider) -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.1]]], np.float32)
    for count, wanted in ((None, []), (np.array([-1]), []), (np.array([9]), [[0, 0, 0], [0, 0, 2]])):
        got = run(provider, node("NonMaxSuppression", 11, 3), boxes, scores, count)
        np.testing.assert_array_equal(got, np.array(wanted, np.int64).reshape(-1, 3))


def test_a_failing_operator_is_fail_with_its_cause(provider: ReferenceProvider) -> None:
    with pytest.raises(Fail, match=r"Gather \(Gather\): onnx.reference: IndexError: .*out of bounds"):
        run(provider, node("Gather", 13, 2), np.ones(2, np.float32), np.array([3]))


def test_operands_that_do_not_go_together_are_fail_in_the_words_of_inference(provider: ReferenceProvider) -> None:
    with pytest.raises(Fail, match=r"Add \(Add\): .*Incompatible dimensions"):
        run(provider, node("Add", 14, 2), np.ones(2, np.float32), np.ones(3, np.float32))


def test_one_element_may_be_an_extent_of_a_range(provider: ReferenceProvider) -> None:
    got = run(
        provider, node("Range", 11, 3), np.zeros(1, np.float32), np.full(1, 3, np.float32), np.ones(1, np.float32)
    )
    np.testing.assert_array_equal(got, [0, 1, 2])


def test_results_are_fresh_on_the_host(make_provider: Callable[..., ReferenceProvider]) -> None:
    provider = make_provider(memory="host")
    x = np.ones((2, 3), np.float32)
    got = run(provider, node("Reshape", 14, 2), x, np.array([6]))
    assert not np.shares_memory(x, got) and got.flags.writeable


def test_unseeded_and_seeded_random(provider: ReferenceProvider) -> None:
    seeded = [run(provider, node("RandomNormal", 22, 0, shape=[5], seed=3.0)) for _ in range(2)]
    np.testing.assert_array_equal(*seeded)
    unseeded = [run(provider, node("RandomNormal", 22, 0, shape=[5])) for _ in range(2)]
    assert not np.array_equal(*unseeded)
