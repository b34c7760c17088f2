"""Cases of ``operators.py``: products, windows, normalisation, quantized and recurrent operators, signals, other domains."""

from __future__ import annotations

import numpy as np

from operator_models import B, Case, D, F, H, I, L, Operand, U, chain, given, one

IMAGE, TOKENS = (1, 64, 56, 56), (1, 128, 768)


def _scale(*values: float) -> Operand:
    return given(*values, dtype="f4", shape=() if len(values) == 1 else None)


def _zero(kind: str, value: int = 0) -> Operand:
    return given(value, dtype=kind, shape=())


PRODUCTS = [
    *(one("MatMul", a, b) for a, b in (
        (F(1, 128, 768), F(768, 768).weight()), (F(1, 768), F(768, 3072).weight()),
        (F(1, 12, 128, 64), F(1, 12, 64, 128)), (F(256, 256), F(256, 256)), (F(64, 8, 16), F(64, 16, 8)),
        (F(1, 1, 512), F(512, 1000).weight()), (D(128, 128), D(128, 128)), (D(1, 256), D(256, 256).weight()),
        (I(64, 64), I(64, 64)), (L(1, 64), L(64, 64)), (L(64, 64), L(64, 64)), (H(128, 768), H(768, 768).weight()),
        (F(2, 3), F(3, 4)), (F(512), F(512, 64).weight()),
    )),
    one("Gemm", F(1, 2048), F(1000, 2048).weight(), F(1000).weight(), transB=1),
    one("Gemm", F(64, 128), F(128, 64).weight(), F(64).weight()),
    one("Gemm", D(64, 128), D(128, 64).weight(), D(64).weight()),
    one("Gemm", F(1, 13), F(13, 3).weight(), F(3).weight()),
    *(one("Einsum", a, b, equation=e) for e, a, b in (
        ("bid,bjd->bij", F(1, 128, 64), F(1, 128, 64)), ("bhid,bhjd->bhij", F(1, 12, 128, 64), F(1, 12, 128, 64)),
        ("bqhd,bkhd->bhqk", F(1, 128, 12, 64), F(1, 128, 12, 64)), ("i,j->ij", F(64), F(128)),
        ("bij,bij->bi", F(4, 64, 64), F(4, 64, 64)), ("nhwc,cd->nhwd", F(1, 14, 14, 64), F(64, 64).weight()),
    )),
    one("Einsum", F(8, 64, 32), equation="bij->bji"), one("Einsum", F(8, 64, 32), equation="bij->b"),
    one("Det", F(64, 3, 3)),
]  # fmt: skip

WINDOWS = [
    one("Conv", F(1, 80, 300), F(128, 80, 3).weight(), F(128).weight(), pads=[1, 1]),
    one("Conv", F(1, 1, 16000), F(64, 1, 10).weight(), strides=[5]),
    one("Conv", F(1, 256, 200), F(256, 1, 5).weight(), group=256, pads=[2, 2]),
    one("Conv", F(1, 128, 200), F(128, 128, 3).weight(), dilations=[2], pads=[2, 2]),
    one("Conv", F(1, 3, 224, 224), F(32, 3, 3, 3).weight(), F(32).weight(), strides=[2, 2], pads=[1, 1, 1, 1]),
    one("Conv", F(*IMAGE), F(64, 64, 3, 3).weight(), F(64).weight(), pads=[1, 1, 1, 1]),
    one("Conv", F(*IMAGE), F(128, 64, 1, 1).weight()),
    one("Conv", F(*IMAGE), F(64, 1, 3, 3).weight(), F(64).weight(), group=64, pads=[1, 1, 1, 1]),
    one("Conv", F(1, 16, 8, 28, 28), F(32, 16, 3, 3, 3).weight(), pads=[1] * 6),
    one("Conv", F(1, 3, 8, 56, 56), F(16, 3, 1, 7, 7).weight(), strides=[1, 2, 2], pads=[0, 3, 3, 0, 3, 3]),
    one("Conv", F(1, 8, 16, 16), F(16, 8, 3, 3)), one("Conv", D(1, 8, 28, 28), D(16, 8, 3, 3).weight()),
    one("ConvTranspose", F(1, 64, 28, 28), F(64, 32, 2, 2).weight(), F(32).weight(), strides=[2, 2]),
    one("ConvTranspose", F(1, 64, 28, 28), F(64, 32, 4, 4).weight(), strides=[2, 2], pads=[1, 1, 1, 1]),
    one("ConvTranspose", F(1, 128, 50), F(128, 64, 16).weight(), strides=[8], pads=[4, 4]),
    one("ConvTranspose", F(1, 32, 28, 28), F(32, 1, 4, 4).weight(), group=32, strides=[2, 2], pads=[1, 1, 1, 1]),
    one("ConvTranspose", F(1, 16, 4, 14, 14), F(16, 8, 2, 2, 2).weight(), strides=[2, 2, 2]),
    one("MaxPool", F(1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    one("MaxPool", F(*IMAGE), kernel_shape=[2, 2], strides=[2, 2]),
    one("MaxPool", F(1, 128, 20, 20), kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
    one("MaxPool", F(1, 256, 13, 13), kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
    one("MaxPool", F(1, 64, 400), kernel_shape=[2], strides=[2]),
    one("MaxPool", F(1, 16, 8, 28, 28), kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
    one("MaxPool", U(1, 64, 56, 56), kernel_shape=[2, 2], strides=[2, 2]),
    one("MaxPool", F(1, 32, 28, 28), results=2, kernel_shape=[2, 2], strides=[2, 2]),
    one("AveragePool", F(*IMAGE), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    one("AveragePool", F(*IMAGE), kernel_shape=[2, 2], strides=[2, 2]),
    one("AveragePool", F(1, 64, 400), kernel_shape=[4], strides=[4]), one("GlobalAveragePool", F(1, 2048, 7, 7)),
    one("GlobalAveragePool", F(*IMAGE)), one("GlobalMaxPool", F(1, 512, 14, 14)),
    one("LpPool", F(1, 32, 28, 28), kernel_shape=[2, 2], strides=[2, 2]), one("GlobalLpPool", F(1, 64, 28, 28)),
    *(one("Resize", F(*shape), None, given(*scales, dtype="f4"), **attributes) for shape, scales, attributes in (
        ((1, 128, 20, 20), (1, 1, 2, 2), {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
        ((1, 64, 40, 40), (1, 1, 2, 2), {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
        ((1, 32, 56, 56), (1, 1, 0.5, 0.5), {"mode": "linear"}),
        ((1, 21, 32, 32), (1, 1, 8, 8), {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
        ((1, 3, 112, 112), (1, 1, 2, 2), {"mode": "cubic", "cubic_coeff_a": -0.75}),
        ((1, 40, 40, 64), (1, 2, 2, 1), {"mode": "nearest"}), ((1, 256, 13, 13), (1, 1, 2, 2), {"mode": "nearest"}),
        ((1, 64, 100), (1, 1, 2), {"mode": "nearest"}), ((1, 3, 64, 64), (1, 1, 3.5, 3.5), {"mode": "nearest"}),
    )),
    one("Resize", U(1, 3, 112, 112), None, given(1, 1, 2, 2, dtype="f4"), mode="linear"),
    *(one("Resize", F(1, 32, 28, 28), None, None, given(1, 32, 56, 56).fed(), mode=mode) for mode in ("nearest", "linear")),
    one("Resize", F(1, 32, 28, 28), None, given(1, 1, 2, 2, dtype="f4").fed(), mode="linear"),
    chain(
        "t = Resize<mode=\"linear\">(x, , , n)", "y = Sigmoid(t)", x=F(1, 1, 64, 64),
        n=given(1, 1, 150, 200).fed(),
    ),
    one("Resize", F(64, 64), None, given(1.5, 2, dtype="f4"), mode="linear"),
    one("Resize", F(1, 1, 128, 128), None, given(1, 1, 0.5, 0.5, dtype="f4"), mode="cubic", antialias=1),
    one("Resize", U(1, 3, 224, 224), None, given(1, 1, 0.5, 0.5, dtype="f4"), mode="linear", antialias=1),
    one("GridSample", F(1, 32, 28, 28), F(1, 28, 28, 2).within(-1, 1)),
    one("GridSample", F(1, 16, 32, 32), F(1, 32, 32, 2).within(-1, 1), mode="nearest"),
    one(
        "RoiAlign", F(1, 64, 28, 28), F(20, 4).within(0, 28), L(20).within(0, 1), output_height=7, output_width=7,
        sampling_ratio=2,
    ),
    one("GridSample", F(1, 4, 16, 16, 16), F(1, 16, 16, 16, 3).within(-1, 1)),
    one("GridSample", F(1, 32, 8, 8, 8), F(1, 8, 8, 8, 3).within(-1, 1), mode="nearest", padding_mode="border"),
    one(
        "RoiAlign", F(1, 64, 28, 28), F(20, 4).within(0, 28), L(20).within(0, 1), output_height=7, output_width=7,
        sampling_ratio=2, mode="max",
    ),
    one("MaxRoiPool", F(1, 64, 28, 28), F(20, 5).within(0, 1), pooled_shape=[7, 7], spatial_scale=28.0),
    one("AffineGrid", F(1, 2, 3), given(1, 3, 64, 64)),
    one("MaxUnpool", F(1, 16, 14, 14), L(1, 16, 14, 14).within(0, 3136), kernel_shape=[2, 2], strides=[2, 2]),
]  # fmt: skip

_ONES = (F(64).within(0.5, 1.5).weight(), F(64).weight())
NORMALISING = [
    one("LayerNormalization", F(*TOKENS), F(768).weight(), F(768).weight(), axis=-1),
    one("LayerNormalization", F(1, 3136, 96), F(96).weight(), F(96).weight(), axis=-1),
    one("LayerNormalization", F(1, 1, 512), F(512).weight(), F(512).weight()),
    one("LayerNormalization", H(*TOKENS), H(768).weight(), H(768).weight(), axis=-1),
    one("LayerNormalization", D(64, 256), D(256).weight(), D(256).weight()),
    one("com.microsoft:SkipLayerNormalization", F(*TOKENS), F(*TOKENS), F(768).weight(), F(768).weight()),
    one("com.microsoft:SkipSimplifiedLayerNormalization", F(*TOKENS), F(*TOKENS), F(768).weight(), results=1),
    one("SimplifiedLayerNormalization", F(*TOKENS), F(768).weight(), axis=-1),
    one("BatchNormalization", F(*IMAGE), *_ONES, *_ONES[::-1][:1], _ONES[0]),
    one("BatchNormalization", F(64, 64), *_ONES, _ONES[1], _ONES[0]), one("InstanceNormalization", F(*IMAGE), *_ONES),
    one("InstanceNormalization", F(1, 64, 1000), *_ONES), one("GroupNormalization", F(*IMAGE), *_ONES, num_groups=8),
    one("LRN", F(1, 96, 28, 28), size=5), one("MeanVarianceNormalization", F(1, 16, 56, 56)),
    one("com.microsoft:QuickGelu", F(*TOKENS)), one("com.microsoft:FastGelu", F(*TOKENS), F(768).weight()),
    one("com.microsoft:BiasGelu", F(*TOKENS), F(768).weight()), one("com.microsoft:Gelu", F(*TOKENS)),
    one("com.microsoft:FusedMatMul", F(1, 12, 128, 64), F(1, 12, 128, 64), transB=1, alpha=0.125),
    one("com.microsoft:FusedConv", F(*IMAGE), F(64, 64, 1, 1).weight(), activation="Relu"),
    one(
        "com.microsoft:RotaryEmbedding", F(1, 128, 768), L(1, 128), F(256, 32).weight(), F(256, 32).weight(),
        num_heads=12,
    ),
    one("com.microsoft:MultiHeadAttention", F(1, 64, 256), F(1, 64, 256), F(1, 64, 256), num_heads=4),
    one("com.microsoft:CDist", F(100, 16), F(200, 16), metric="euclidean"), one("com.microsoft:Inverse", F(8, 4, 4)),
    one("com.microsoft:Unique", F(1000), results=3),
    one("com.microsoft:NGramRepeatBlock", L(4, 64), F(4, 1000), ngram_size=3),
    one("com.microsoft:ExpandDims", F(128, 64), given(1, dtype="i4", shape=())),
    one("com.microsoft:MurmurHash3", L(100), positive=1),
    chain(
        "t = Conv<pads=[1,1,1,1]>(x, w)", "u = BatchNormalization(t, s, b, m, v)", "y = Relu(u)", x=F(1, 32, 28, 28),
        w=F(32, 32, 3, 3).weight(), s=F(32).weight(), b=F(32).weight(), m=F(32).weight(),
        v=F(32).within(0.5, 1.5).weight(),
    ),
    chain(
        "t = MatMul(x, w)", "u = Add(t, b)", "y = Gelu(u)", x=F(1, 64, 256), w=F(256, 1024).weight(),
        b=F(1024).weight(),
    ),
]  # fmt: skip

_Q = (_scale(0.05), _zero("u1", 50))
QUANTIZED = [
    one("QuantizeLinear", F(*IMAGE), *_Q), one("QuantizeLinear", F(*TOKENS), _scale(0.05), _zero("i1")),
    one("DequantizeLinear", U(*IMAGE), *_Q),
    one("DequantizeLinear", B(512, 512), given(*[0.1] * 512, dtype="f4"), given(*[0] * 512, dtype="i1"), axis=0),
    one("DequantizeLinear", I(1, 1000), _scale(0.01)), one("DynamicQuantizeLinear", F(*TOKENS), results=3),
    one("MatMulInteger", U(128, 256), B(256, 256).weight()),
    one("QLinearMatMul", U(128, 256), *_Q, B(256, 256).weight(), _scale(0.01), _zero("i1"), *_Q),
    one(
        "QLinearConv", U(1, 32, 28, 28), *_Q, B(64, 32, 3, 3).weight(), _scale(0.01), _zero("i1"), *_Q,
        pads=[1, 1, 1, 1],
    ),
    one("ConvInteger", U(1, 16, 28, 28), U(16, 16, 3, 3).weight()),
    one("com.microsoft:QLinearAdd", U(*IMAGE), *_Q, U(*IMAGE), *_Q, *_Q),
    one("com.microsoft:QLinearMul", U(*IMAGE), *_Q, U(*IMAGE), *_Q, *_Q),
    one("com.microsoft:QLinearSigmoid", U(*IMAGE), *_Q, *_Q),
    one("com.microsoft:QLinearLeakyRelu", U(*IMAGE), *_Q, *_Q),
    one("com.microsoft:QLinearGlobalAveragePool", U(1, 256, 7, 7), *_Q, *_Q),
    one("com.microsoft:QLinearConcat", *_Q, U(1, 32, 28, 28), *_Q, U(1, 32, 28, 28), *_Q, axis=1),
    one("com.microsoft:QLinearAveragePool", U(1, 64, 28, 28), *_Q, *_Q, kernel_shape=[2, 2], strides=[2, 2]),
    one("com.microsoft:QLinearSoftmax", U(128, 128), *_Q, _scale(1 / 256), _zero("u1"), axis=-1, opset=13),
    one("com.microsoft:DynamicQuantizeMatMul", F(128, 256), B(256, 256).weight(), _scale(0.02)),
    one(
        "com.microsoft:MatMulNBits", F(1, 256), U(256, 8, 16).weight(), F(256 * 8).weight(), K=256, N=256, bits=4,
        block_size=32,
    ),
    one("com.microsoft:QuantizeLinear", F(128, 128), *_Q),
    chain("t = DequantizeLinear(x, s, z)", "u = Relu(t)", "y = QuantizeLinear(u, s, z)", x=U(*IMAGE), s=_Q[0], z=_Q[1]),
]  # fmt: skip

SEQUENCES = [
    one(
        "LSTM", F(50, 1, 128), F(1, 512, 128).within(-0.1, 0.1).weight(), F(1, 512, 128).within(-0.1, 0.1).weight(),
        F(1, 1024).weight(), results=3, hidden_size=128,
    ),
    one(
        "LSTM", F(20, 8, 64), F(2, 256, 64).within(-0.1, 0.1).weight(), F(2, 256, 64).within(-0.1, 0.1).weight(),
        F(2, 512).weight(), results=1, hidden_size=64, direction="bidirectional",
    ),
    one(
        "GRU", F(50, 1, 128), F(1, 384, 128).within(-0.1, 0.1).weight(), F(1, 384, 128).within(-0.1, 0.1).weight(),
        F(1, 768).weight(), results=2, hidden_size=128, linear_before_reset=1,
    ),
    one(
        "GRU", F(20, 4, 64), F(1, 192, 64).within(-0.1, 0.1).weight(), F(1, 192, 64).within(-0.1, 0.1).weight(),
        results=2, hidden_size=64,
    ),
    one(
        "RNN", F(50, 1, 64), F(1, 64, 64).within(-0.1, 0.1).weight(), F(1, 64, 64).within(-0.1, 0.1).weight(),
        results=2, hidden_size=64,
    ),
    one("DFT", F(1, 400, 1), onesided=1), one("DFT", F(8, 512, 2)),
    one("STFT", F(1, 4000), given(160, shape=()), F(400).weight(), given(400, shape=()), onesided=1),
    one("HannWindow", L().within(400, 401)), one("HammingWindow", L().within(400, 401)), one("BlackmanWindow", L().within(400, 401)),
    one(
        "MelWeightMatrix", given(40, shape=()), given(400, shape=()), given(16000, shape=()), F().within(20, 21),
        given(8000, dtype="f4", shape=()),
    ),
    one("RandomNormalLike", F(128, 128)), one("RandomUniform", shape=[128, 128]), one("RandomUniformLike", F(64, 64)),
    one("Bernoulli", F(128, 128).within(0, 1)), one("Multinomial", F(4, 100), sample_size=16),
]  # fmt: skip


def _trees(count: int, depth: int, features: int) -> dict[str, object]:
    """Attributes of ``count`` full trees of random splits, one target."""
    rng = np.random.default_rng(0)
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    leaves, number = nodes - inner, np.arange(nodes)
    split = number < inner
    return {
        "n_targets": 1,
        "nodes_treeids": np.repeat(np.arange(count), nodes).tolist(),
        "nodes_nodeids": np.tile(number, count).tolist(),
        "nodes_featureids": np.where(np.tile(split, count), rng.integers(0, features, count * nodes), 0).tolist(),
        "nodes_values": np.float32(rng.standard_normal(count * nodes)).tolist(),
        "nodes_modes": ["BRANCH_LEQ" if s else "LEAF" for s in split] * count,
        "nodes_truenodeids": np.tile(np.where(split, 2 * number + 1, 0), count).tolist(),
        "nodes_falsenodeids": np.tile(np.where(split, 2 * number + 2, 0), count).tolist(),
        "target_treeids": np.repeat(np.arange(count), leaves).tolist(),
        "target_nodeids": np.tile(np.arange(inner, nodes), count).tolist(),
        "target_ids": [0] * (count * leaves),
        "target_weights": np.float32(rng.standard_normal(count * leaves)).tolist(),
    }


def _numbers(count: int) -> list[float]:
    return np.float32(np.random.default_rng(0).standard_normal(count)).tolist()


_SVM = {"kernel_type": "RBF", "kernel_params": [0.1, 0.0, 3.0], "support_vectors": _numbers(640), "n_supports": 40}
MACHINE_LEARNING = [
    one("ai.onnx.ml:Scaler", F(100, 16), offset=_numbers(16), scale=_numbers(16)),
    one("ai.onnx.ml:Normalizer", F(100, 16), norm="L2"),
    one("ai.onnx.ml:Imputer", F(100, 16), imputed_value_floats=_numbers(16), replaced_value_float=float("nan")),
    one("ai.onnx.ml:Binarizer", F(100, 16), threshold=0.5),
    one("ai.onnx.ml:OneHotEncoder", L(256), cats_int64s=list(range(16))),
    one("ai.onnx.ml:LabelEncoder", L(256), keys_int64s=list(range(100)), values_floats=_numbers(100)),
    one("ai.onnx.ml:ArrayFeatureExtractor", F(100, 16), L(1, 4).within(0, 16)),
    one("ai.onnx.ml:FeatureVectorizer", F(100, 4), F(100, 12), inputdimensions=[4, 12]),
    one("ai.onnx.ml:LinearRegressor", F(100, 16), coefficients=_numbers(16), intercepts=[0.5]),
    one(
        "ai.onnx.ml:LinearClassifier", F(100, 16), results=2, coefficients=_numbers(48), intercepts=_numbers(3),
        classlabels_ints=[0, 1, 2], multi_class=1, post_transform="SOFTMAX",
    ),
    one("ai.onnx.ml:SVMRegressor", F(50, 16), **_SVM, coefficients=_numbers(40), rho=[0.5]),
    one("ai.onnx.ml:TreeEnsembleRegressor", F(1, 16), **_trees(100, 6, 16)),
    one("ai.onnx.ml:TreeEnsembleRegressor", F(200, 16), **_trees(100, 6, 16)),
]  # fmt: skip

NEURAL: list[Case] = [*PRODUCTS, *WINDOWS, *NORMALISING, *QUANTIZED, *SEQUENCES, *MACHINE_LEARNING]
"""All of this module."""
