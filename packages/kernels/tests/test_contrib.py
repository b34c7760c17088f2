"""Operators of ``com.microsoft``: against onnxruntime, and small cases worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from contrib_cases import RNG, F, case, flags, integers, normal, run, uniform
from one_node import Case, assert_equal, assert_portable, by_kernel, by_onnxruntime, is_portable


def norms() -> Iterator[Case]:
    for dtype, atol in ((np.float32, 1e-5), (np.float16, 1e-2)):
        name = np.dtype(dtype).name

        def n(*shape: int, dtype: Any = dtype) -> np.ndarray:
            return normal(*shape, dtype=dtype)

        x, skip, gamma, beta, bias = n(2, 3, 8), n(2, 3, 8), n(8), n(8), n(8)
        outputs = ["y", "", "", "sum"]
        yield case("SimplifiedLayerNormalization", [x, gamma], 2, name, atol, "")
        yield case("SimplifiedLayerNormalization", [x, n(3, 8)], 1, f"{name}-axis", atol, "", axis=1)
        yield case("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], outputs, name, atol, epsilon=1e-5)
        yield case("SkipLayerNormalization", [x, skip, gamma, beta, bias], outputs, name, atol, epsilon=1e-5)
        yield case("SkipLayerNormalization", [x, skip[0], gamma], 1, f"{name}-broadcast", atol)
    ids, segments = integers(np.int32, 2, 5, low=0, high=6), flags(2, 5)
    words, places, kinds, gamma, beta = normal(10, 8), normal(6, 8), normal(2, 8), normal(8), normal(8)
    tables = [ids, segments, words, places, kinds, gamma, beta]
    yield case("EmbedLayerNormalization", [*tables, np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)], 3)
    yield case("EmbedLayerNormalization", [ids, None, words, places, None, gamma, beta, None, ids], 2, "position_ids")
    quantized = [
        ids,
        segments,
        *(integers(np.uint8, *s) for s in ((10, 8), (6, 8), (2, 8), (8,), (8,))),
        flags(2, 5),
        *(np.array(v, F) for v in (0.01, 0.02, 0.03, 0.04, 0.05)),
        *(np.array(v, np.uint8) for v in (128, 120, 110, 100, 90)),
    ]
    yield case("QEmbedLayerNormalization", quantized, 2)


def activations() -> Iterator[Case]:
    x, bias = 3 * normal(2, 3, 8), normal(8)
    for op_type in ("Gelu", "FastGelu", "QuickGelu"):
        yield case(op_type, [x])
    yield case("QuickGelu", [x], label="alpha", alpha=0.7)
    yield case("BiasGelu", [x, bias])
    yield case("FastGelu", [x, bias], label="bias")


def fused() -> Iterator[Case]:
    yield case("FusedMatMul", [normal(2, 3, 5, 4), normal(2, 3, 6, 5)], transA=1, transB=1, alpha=0.5)
    yield case("FusedMatMul", [normal(4, 2, 3, 5), normal(2, 3, 5, 6)], label="transBatchA", transBatchA=1)
    yield case("FusedMatMul", [normal(5, 2, 3, 4), normal(2, 3, 5, 6)], label="both A", transBatchA=1, transA=1)
    yield case("FusedMatMul", [normal(2, 3, 4, 5), normal(6, 2, 3, 5)], label="both B", transBatchB=1, transB=1)
    yield case("FusedMatMul", [normal(5), normal(5, 6)], label="vector", transA=1)
    yield case("TransposeMatMul", [normal(2, 5, 4), normal(2, 5, 6)], transA=1)
    for name, parameters in {
        "Relu": {},
        "LeakyRelu": {"activation_alpha": 0.2},
        "Tanh": {},
        "Sigmoid": {},
        "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4},
        "Elu": {"activation_alpha": 0.3},
        "Selu": {"activation_alpha": 0.3, "activation_gamma": 2.0},
        "Softplus": {},
        "Softsign": {},
        "ThresholdedRelu": {"activation_alpha": 0.5},
        "ParametricSoftplus": {"activation_alpha": 0.5, "activation_beta": 2.0},
        "ScaledTanh": {"activation_alpha": 0.5, "activation_beta": 2.0},
    }.items():
        inputs = [normal(3, 4), normal(4, 5), normal(5)]
        yield case("FusedGemm", inputs, label=name, activation=name, alpha=0.7, beta=0.3, **parameters)
    x, w, b = normal(2, 4, 6, 6), normal(6, 2, 3, 3), normal(6)
    for name, params in {
        "Relu": None,
        "LeakyRelu": [0.2],
        "Tanh": None,
        "Sigmoid": None,
        "HardSigmoid": [0.3, 0.4],
        "Clip": [-0.5, 0.5],
        "HardSwish": None,
    }.items():
        more = {"activation": name, "group": 2, "pads": [1] * 4, **({"activation_params": params} if params else {})}
        yield case("FusedConv", [x, w, b, normal(2, 6, 6, 6)], label=name, **more)
    pads = np.array([1, 0, 1, 1])
    yield case("ConvTransposeWithDynamicPads", [x, normal(4, 3, 3, 3), pads, normal(3)], strides=[2, 2])


def experimental() -> Iterator[Case]:
    """Of ONNX's own domain before opset 9."""
    x, image = normal(3, 4), normal(2, 3, 6, 7)
    limits = [np.array([1, -3]), np.array([99, -1])]
    cases: list[tuple[str, list[Any], dict[str, Any]]] = [
        *((op_type, [x], {"alpha": 0.7, "beta": 1.3}) for op_type in ("Affine", "ParametricSoftplus", "ScaledTanh")),
        ("Scale", [x], {"scale": 0.4}),
        ("ThresholdedRelu", [x], {"alpha": 0.3}),
        *(
            ("MeanVarianceNormalization", [image], {"across_channels": across, "normalize_variance": varies})
            for across in (0, 1)
            for varies in (0, 1)
        ),
        ("ImageScaler", [image], {"scale": 0.4, "bias": [1.0, -2.0, 0.5]}),
        ("Crop", [image], {"border": [1, 2, 3, 0]}),
        ("Crop", [image], {"border": [1, 2, 0, 0], "scale": [3, 4]}),
        ("DynamicSlice", [image, *limits], {}),
        ("DynamicSlice", [image, *limits, np.array([3, 2])], {}),
    ]
    for number, (op_type, inputs, attributes) in enumerate(cases):
        yield Case("", op_type, inputs, attributes, label=f"{number}", opset=8)


def others() -> Iterator[Case]:
    x = normal(2, 3, 4, 4)
    yield case("Inverse", [x], atol=1e-4)
    for upper in (0, 1):
        yield case("Trilu", [x, np.array(1)], label=f"{upper}", upper=upper)
    yield case("Unique", [np.array([2, 1, 1, 3, 4, 3], F)], 3)
    for axis in (0, -1, 2):
        yield case("ExpandDims", [x, np.array(axis, np.int32)], label=f"{axis}")
    yield case("GatherND", [x, RNG.integers(0, 2, size=(4, 2))])
    yield case("Pad", [x, np.array([0, 0, 1, 2, 0, 0, -1, 1]), np.array([3.0], F)])
    yield case("Pad", [x, np.array([0, 0, 1, 2, 0, 0, 1, 1])], label="reflect", mode="reflect")
    for dtype in (np.float32, np.float64, np.int16, np.int32, np.int64):
        yield case("Range", [np.array(v, dtype) for v in (10, 1, -4)], label=np.dtype(dtype).name)
    for n in (1, 2, 3):
        yield case("NGramRepeatBlock", [RNG.integers(0, 4, size=(3, 12)), normal(3, 6)], label=f"{n}", ngram_size=n)
    for mode in ("bilinear", "nearest"):
        inputs = [x, uniform(-0.2, 1.2, 5, 4), flags(5), np.array([3, 5], np.int32)]
        yield case("CropAndResize", inputs, label=mode, mode=mode, extrapolation_value=0.7)
    yield case("GridSample", [x, uniform(-1.2, 1.2, 2, 3, 4, 2)])
    yield case("UnfoldTensor", [normal(3, 10, 4)], dim=1, size=4, step=2)
    words = np.array(["a b,c", "hello, wörld  x", "", "ab"], object)
    numbers = [np.frombuffer(RNG.bytes(48), dtype) for dtype in (np.int32, np.uint32, np.int64, np.uint64)]
    for x in (words, normal(3), normal(4, dtype=np.float64), *numbers, words[:0]):
        for label, attributes in (("", {}), ("seeded", {"seed": 77, "positive": 0})):
            yield case("MurmurHash3", [x], label=f"{x.dtype}{x.shape}{label}", **attributes)
    for kind in (
        {"separators": [" "]},
        {"separators": [",", " "]},
        {"separators": [""]},
        {"separators": ["[, ]+"]},
        {"tokenexp": "[a-z]+"},
        {"tokenexp": "a|ab|[c-z]"},
        {"tokenexp": "."},
    ):
        for mark in (0, 1):
            fixed = {"mark": mark, "mincharnum": 1, "pad_value": "#"}
            yield case("Tokenizer", [words.reshape(2, 2)], label=f"{kind}-{mark}", **fixed, **kind)


def tokens() -> Iterator[Case]:
    for shape in ((4, 6), (1, 5), (5, 1), (1, 4, 7)):
        for number in range(3):
            yield case(
                "DynamicTimeWarping", [integers(np.int32, *shape, low=0, high=4).astype(F)], label=f"{shape}{number}"
            )
        yield case("DynamicTimeWarping", [normal(*shape)], label=f"{shape}")
    for number in range(8):
        source, start = integers(np.int64, 7, low=0, high=4), number % 5
        predicted = np.append(source[start:], 1)
        if number % 3:
            predicted[number % predicted.size] = 9
        inputs = [source, source[:start], np.array([start]), predicted]
        sizes = {"min_ngram_size": 1 + number % 2, "max_ngram_size": 3}
        yield case("BifurcationDetector", inputs, 2, f"{number}", **sizes)
    yield case("BifurcationDetector", [source, source[:3], np.array([0])], 2, "bare")
    words = integers(np.int32, 5, 6, low=1, high=10)
    words[0, 3:] = words[1, 1:] = words[2, 2] = 0
    yield case("WordConvEmbedding", [words, normal(5, 1, 2, 3), normal(5), normal(10, 3)])
    yield case("SampleOp", [normal(2, 3)])


CASES = [*norms(), *activations(), *fused(), *experimental(), *others(), *tokens()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_onnxruntime(case: Case) -> None:
    assert_equal(case, by_kernel(case), by_onnxruntime(case))


@pytest.mark.parametrize("case", [c for c in CASES if is_portable(c)], ids=str)
def test_with_the_standard_alone(case: Case) -> None:
    assert_portable(case)


def test_bias_split_gelu() -> None:
    x = np.array([[[3.0, -1.0, 0.0, 1e9]]], F)
    assert run("BiasSplitGelu", [x, np.array([0.0, 3.0, 0.0, 0.0], F)])[0].tolist() == [[[0.0, 2e9]]]


def test_bias_dropout_outside_training() -> None:
    data, bias, residual = np.ones((2, 3), F), np.array([1, 2, 3], F), np.full((2, 3), 10, F)
    y, mask = run("BiasDropout", [data, bias, residual], 2)
    assert y.tolist() == [[12, 13, 14]] * 2
    assert mask.all()


def test_bias_softmax_over_all_later_axes() -> None:
    (y,) = run("BiasSoftmax", [np.zeros((2, 2, 2), F), np.zeros((1, 2, 2), F)], axis=1, is_inner_broadcast=0)
    np.testing.assert_allclose(y, np.full((2, 2, 2), 0.25, F))


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("FusedGemm", [normal(2, 2), normal(2, 2)], {"activation": "Nothing"}),
        ("CDist", [normal(2, 2), normal(2, 2)], {"metric": "cosine"}),
        ("Tokenizer", [np.array(["a"], object)], {"mark": 0, "mincharnum": 1, "pad_value": ""}),
        ("MultiHeadAttention", [normal(1, 2, 4)], {"num_heads": 2}),
    ],
)
def test_refusals(op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        run(op_type, inputs, **attributes)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(last: int, activation: int) -> None:
    """onnxruntime has it on GPUs alone."""
    x, skip, gamma, beta, bias = normal(2, 8, 3, 5), normal(2, 8), normal(8), normal(8), normal(8)
    attributes = {"groups": 4, "activation": activation, "channels_last": last, "epsilon": 1e-3}

    def expected(x: np.ndarray) -> np.ndarray:
        parts = x.astype(np.float64).reshape(2, 4, -1)
        centred = parts - parts.mean(-1, keepdims=True)
        y = (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)).reshape(x.shape)
        y = y * gamma[:, None, None] + beta[:, None, None]
        return y / (1 + np.exp(-y)) if activation else y

    def arranged(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x

    (y,) = run("GroupNorm", [arranged(x), gamma, beta], **attributes)
    np.testing.assert_allclose(y, arranged(expected(x)), rtol=1e-4, atol=1e-5)
    total = x + skip[:, :, None, None] + bias[:, None, None]
    for given in (skip, arranged(skip[:, :, None, None]), arranged(np.broadcast_to(skip[:, :, None, None], x.shape))):
        y, added = run("SkipGroupNorm", [arranged(x), gamma, beta, given, bias], 2, **attributes)
        np.testing.assert_allclose(added, arranged(total), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y, arranged(expected(total)), rtol=1e-4, atol=1e-5)


def test_convolution_of_channels_last() -> None:
    """onnxruntime has it on GPUs alone."""
    x, w, b = normal(2, 4, 7, 6), normal(6, 2, 3, 3), normal(6)
    attributes = {"group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1]}
    last = [np.ascontiguousarray(np.moveaxis(v, 1, -1)) for v in (x, w)]
    (y,) = run("NhwcConv", [*last, b], **attributes)
    (want,) = by_kernel(Case("", "Conv", [x, w, b], attributes, 1, 22, 1e-5, 1e-6, ""))
    np.testing.assert_allclose(np.moveaxis(y, -1, 1), want, rtol=1e-5, atol=1e-6)


def test_an_empty_word_has_no_vector() -> None:
    """onnxruntime leaves it unset."""
    (y,) = run("WordConvEmbedding", [np.zeros((1, 3), np.int32), normal(4, 1, 2, 3), normal(4), normal(5, 3)])
    assert y.tolist() == [[0.0] * 4]


def test_complex_products() -> None:
    """onnxruntime has them on GPUs alone."""
    a, b = normal(3, 4, 2), normal(4, 2)
    x, y = (v[..., 0] + 1j * v[..., 1] for v in (a, b))
    for op_type, want in (("ComplexMul", x * y), ("ComplexMulConj", x * y.conj())):
        np.testing.assert_allclose(
            run(op_type, [a, b])[0], np.stack([want.real, want.imag], axis=-1), rtol=1e-5, atol=1e-6
        )


def test_fused_convolution_of_channels_last() -> None:
    """onnxruntime has it on GPUs alone."""
    x, w, b, z = normal(2, 4, 7, 6), normal(6, 2, 3, 3), normal(6), normal(2, 6, 7, 6)
    told = {"group": 2, "pads": [1] * 4, "activation": "Relu"}
    turned = [np.ascontiguousarray(np.moveaxis(v, 1, -1)) for v in (x, z)]
    (y,) = run("NhwcFusedConv", [turned[0], w, b, turned[1]], **told)
    np.testing.assert_allclose(np.moveaxis(y, -1, 1), run("FusedConv", [x, w, b, z], **told)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("DynamicTimeWarping", [normal(2, 3, 4)], {}),
        ("DynamicTimeWarping", [normal(0, 4)], {}),
        ("BifurcationDetector", [np.arange(4), np.arange(2), np.array([1]), np.arange(2)], {}),
        ("BifurcationDetector", [np.arange(4), np.arange(2), np.array([1])], {"min_ngram_size": 4}),
        ("WordConvEmbedding", [np.ones((1, 1), np.int32), normal(4, 1, 2, 3), normal(4), normal(5, 3)], {}),
        ("WordConvEmbedding", [np.ones((1, 3), np.int32), normal(4, 1, 2, 3), normal(4), normal(5, 3)], {"conv_window_size": 3}),
        ("ComplexMul", [normal(3, 2), normal(3, 3)], {}),
    ],
)  # fmt: skip
def test_shapes_that_do_not_go_together(op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        run(op_type, inputs, **attributes)
